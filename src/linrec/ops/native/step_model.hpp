// What the parts of the Python module share.
#pragma once

#include <nanobind/nanobind.h>

#include <array>

#include "problem.hpp"

namespace linrec {

using RuleFields = std::array<int, 6>;  // linrec.ops.rule.Rule, field by field

Rule rule_of(const RuleFields& fields);

void define_step_model(nanobind::module_& module);

}  // namespace linrec
