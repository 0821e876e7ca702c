// What the parts of the Python module share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "problem.hpp"
#include "repeats.hpp"

namespace linrec {

using RuleFields = std::array<int, 6>;  // linrec.ops.rule.Rule, field by field

Rule rule_of(const RuleFields& fields);

// The kernels of the newest instruction set of the CPU.
const Kernels& kernels(int64_t width);
const RepeatKernels& repeat_kernels();

// fewer multiplications than this are done before another thread has woken up
constexpr int64_t MIN_WORK_PER_THREAD = 1 << 18;

inline int useful_threads(int threads, int64_t work) {
  return static_cast<int>(std::min<int64_t>(threads, 1 + work / MIN_WORK_PER_THREAD));
}

template <typename Array>
DType dtype_of(const Array& x) {
  if (x.dtype() == nanobind::dtype<float>()) return DType::float32;
  if (x.dtype() == nanobind::dlpack::dtype{4, 16, 1}) return DType::bfloat16;  // 4: kDLBfloat
  throw std::invalid_argument("the kernels take float32 and bfloat16");
}

void define_rows(nanobind::module_& module);
void define_repeats(nanobind::module_& module);
void define_step_model(nanobind::module_& module);

}  // namespace linrec
