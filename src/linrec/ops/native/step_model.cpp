// linrec.ops._native.StepModel: users advanced event by event, from bytes to bytes; and the choice
// of the best of many scores.
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "step.hpp"

namespace nb = nanobind;

namespace linrec {
namespace {

using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Integers = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Hidden = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Weights = std::pair<Table, Floats>;  // of a linear layer, [out, in] and [out]

constexpr int64_t PAD = 0;

struct OpenEvent {  // as backbones/open_event.py has it
  int64_t item;
  double time, previous;
};

void check(bool right, const char* what) {
  if (!right) throw std::invalid_argument(what);
}

// The state of a user: [hidden], [stack ...], [mean], [open event]. Which of them there are is the
// model's; their order is that of the fields of the backbone's state.
class StepModel {
 public:
  // timed: whether the newest event stays open, instead of the hidden vector after it
  StepModel(int64_t width, int64_t items, const std::optional<Doubles>& bounds)
      : width_(width), items_(items), timed_(bounds.has_value()) {
    check(width > 0 && items > 0, "a model has a width and items");
    if (bounds) bounds_.assign(bounds->data(), bounds->data() + bounds->size());
    if (!timed_) bytes_ = width_ * sizeof(float);
  }

  // A stack of blocks; `add_layer` adds to the newest one. rule: None for exponential keys.
  void add_stack(const std::optional<RuleFields>& rule, int64_t heads, bool pre_norm,
                 const Table& item, const Table& position, const std::optional<Table>& previous,
                 const std::optional<Table>& following, const Table& norm, double epsilon,
                 const std::optional<Table>& final_norm) {
    check(heads > 0 && width_ % heads == 0, "heads must divide the width");
    check(static_cast<int64_t>(item.shape(0)) > items_, "there must be a vector of each item");
    check(previous.has_value() == timed_ && following.has_value() == timed_,
          "a model that reads time has vectors of gaps");
    StepStack s;
    s.width = width_, s.heads = heads, s.pre_norm = pre_norm;
    s.exponential_keys = !rule.has_value();
    if (rule) s.rule = rule_of(*rule);
    s.item = rows(item), s.position = rows(position), s.positions = position.shape(0);
    check(s.positions > 0, "a model has positions");
    if (timed_) {
      const size_t buckets = bounds_.size() + 2;  // and "unknown"
      check(previous->shape(0) >= buckets && following->shape(0) >= buckets,
            "there must be a vector of each gap");
      s.previous = rows(*previous), s.following = rows(*following);
    }
    s.norm = normed(norm, epsilon);
    if (final_norm) s.final_norm = normed(*final_norm, epsilon);
    stacks_.push_back(s);
    layers_.emplace_back();
    offsets_.push_back(bytes_);
    bytes_ += sizeof(int64_t);
  }

  void add_layer(const Weights& project_in, const Weights& project_out, const Weights& widen,
                 const Weights& narrow, const std::optional<Weights>& gate, const Table& attention,
                 const Table& feed_forward, double epsilon,
                 const std::optional<Floats>& head_scale, const std::optional<Floats>& kept) {
    check(!stacks_.empty(), "a layer belongs to a stack");
    StepStack& s = stacks_.back();
    const int64_t inner = widen.first.shape(0);
    check(!s.inner || s.inner == inner, "all layers of a stack have the same inner size");
    s.inner = inner;
    StepLayer layer;
    layer.project_in = packed(project_in, width_, 3 * width_);
    layer.project_out = packed(project_out, width_, width_);
    layer.widen = packed(widen, width_, inner);
    layer.narrow = packed(narrow, inner, width_);
    if (gate) layer.gate = packed(*gate, width_, width_);
    layer.attention = normed(attention, epsilon);
    layer.feed_forward = normed(feed_forward, epsilon);
    if (head_scale) layer.head_scale = vector(*head_scale, width_);
    if (kept) layer.kept = vector(*kept, s.heads);
    std::vector<StepLayer>& layers = layers_.back();
    layers.push_back(layer);
    s.layers = layers.data(), s.depth = static_cast<int64_t>(layers.size());
    const int64_t d = width_ / s.heads, peaks = s.exponential_keys ? width_ : 0;
    bytes_ += sizeof(float) * (width_ * d + width_ + s.heads + peaks);
  }

  // The hidden vector is a weighted mean of item vectors, scaled to 1 / temperature.
  void add_mean(const Floats& weigh, float temperature) {
    check(stacks_.size() == 1, "a mean follows one stack");
    weigh_ = vector(weigh, width_), temperature_ = temperature;
    offsets_.push_back(bytes_);
    bytes_ += sizeof(float) * (width_ + 2);
  }

  // The hidden vector is a linear function of those of all stacks.
  void add_fusion(const Weights& fuse) {
    fuse_ = packed(fuse, width_ * static_cast<int64_t>(stacks_.size()), width_);
  }

  int64_t state_bytes() const { return bytes_ + (timed_ ? sizeof(OpenEvent) : 0); }

  // Each user's state after some more events: those of the first user, then of the second, ...
  nb::list advance(const nb::list& states, const Integers& items, const Doubles& times,
                   const Integers& lengths) {
    const int64_t users = static_cast<int64_t>(states.size());
    check(static_cast<int64_t>(lengths.size()) == users, "there is one length per user");
    check(items.size() == times.size(), "every event has a time");
    std::vector<Row> rows(users);
    int64_t begin = 0;
    nb::list after;
    for (int64_t u = 0; u < users; ++u) {
      const int64_t length = lengths.data()[u];
      check(length >= 0 && length <= static_cast<int64_t>(items.size()) - begin,
            "the lengths must sum to the number of events");
      char* state = copied(states[u], after);
      rows[u] = {state, items.data() + begin, times.data() + begin, length};
      begin += length;
    }
    for (size_t i = 0; i < items.size(); ++i) check_item(items.data()[i]);
    {
      const nb::gil_scoped_release released;
      run(rows);
    }
    return after;
  }

  // The hidden vector of each user in a request at these times (NaN: unknown), [users, width].
  void hidden(const nb::list& states, const Doubles& at, const Hidden& out) {
    const int64_t users = static_cast<int64_t>(states.size());
    check(static_cast<int64_t>(at.size()) == users, "there is one time per user");
    check(static_cast<int64_t>(out.shape(0)) == users &&
              static_cast<int64_t>(out.shape(1)) == width_,
          "the result is [users, width]");
    std::vector<const char*> given(users);
    for (int64_t u = 0; u < users; ++u) given[u] = content(states[u]);
    const nb::gil_scoped_release released;
    if (!timed_) {
      for (int64_t u = 0; u < users; ++u)
        std::memcpy(out.data() + u * width_, given[u], width_ * sizeof(float));
      return;
    }
    // a request closes a copy of the open event
    std::vector<char> copies(STEP_ROWS * state_bytes());
    Block block(*this);
    for (int64_t u = 0; u < users; u += STEP_ROWS) {
      block.clear();
      for (int64_t r = u; r < std::min(users, u + STEP_ROWS); ++r) {
        OpenEvent open;
        std::memcpy(&open, given[r] + bytes_, sizeof open);
        float* to = out.data() + r * width_;
        if (open.item == PAD) {
          std::fill(to, to + width_, 0.0f);
          continue;
        }
        check_item(open.item);
        char* copy = copies.data() + block.count * state_bytes();
        std::memcpy(copy, given[r], state_bytes());
        block.add(copy, closed(open, at.data()[r]), to);
      }
      block.run();
    }
  }

 private:
  struct Row {
    char* state;
    const int64_t* items;
    const double* times;
    int64_t length;
  };

  // Up to STEP_ROWS events that are computed together.
  struct Block {
    explicit Block(const StepModel& model) : model(model) {
      int64_t floats = 0;
      for (const StepStack& s : model.stacks_) floats = std::max(floats, step_scratch(s));
      const int64_t stacks = static_cast<int64_t>(model.stacks_.size());
      hidden.resize(STEP_ROWS * model.width_ * stacks);
      joined.resize(STEP_ROWS * (padded(model.width_ * stacks) + padded(model.width_)));
      scratch.resize(floats + 16);
    }

    void clear() { count = 0; }
    void add(char* state, const StepEvent& event, float* to) {
      states[count] = state, events[count] = event, out[count] = to;
      ++count;
    }

    void run() {
      if (!count) return;
      const Kernels& code = kernels(8);
      const int64_t width = model.width_, stacks = static_cast<int64_t>(model.stacks_.size());
      const auto address = reinterpret_cast<uintptr_t>(scratch.data());
      float* aligned = scratch.data() + (64 - address % 64) % 64 / sizeof(float);
      for (int64_t n = 0; n < stacks; ++n) {
        char* parts[STEP_ROWS];
        for (int r = 0; r < count; ++r) parts[r] = states[r] + model.offsets_[n];
        code.step(model.stacks_[n], count, events, parts, hidden.data() + n * STEP_ROWS * width,
                  aligned);
      }
      if (model.weigh_) return mean();
      if (!model.fuse_.weight) {
        for (int r = 0; r < count; ++r) copy(hidden.data() + r * width, out[r]);
        return;
      }
      const int64_t row = padded(width * stacks);
      float* fused = joined.data() + STEP_ROWS * row;
      for (int r = 0; r < count; ++r)
        for (int64_t n = 0; n < stacks; ++n)
          copy(hidden.data() + (n * STEP_ROWS + r) * width, joined.data() + r * row + n * width);
      code.linear(model.fuse_, count, joined.data(), row, fused, padded(width));
      for (int r = 0; r < count; ++r) copy(fused + r * padded(width), out[r]);
    }

    void copy(const float* from, float* to) const {
      std::memcpy(to, from, model.width_ * sizeof(float));
    }

    // As ops/running_mean.py: exponents relative to the largest so far.
    void mean() {
      const int64_t width = model.width_;
      for (int r = 0; r < count; ++r) {
        const float* x = model.stacks_[0].item + events[r].item * width;
        const float* given = hidden.data() + r * width;
        float logit = 0;
        for (int64_t i = 0; i < width; ++i) logit += model.weigh_[i] * given[i];
        float* total = reinterpret_cast<float*>(states[r] + model.offsets_[1]);
        float& peak = total[width + 1];
        const float top = std::max(peak, logit);
        const float old = std::exp(peak - top), own = std::exp(logit - top);
        for (int64_t i = 0; i < width; ++i) total[i] = old * total[i] + own * x[i];
        total[width] = old * total[width] + own;
        peak = top;
        const float by = 1.0f / std::max(total[width], 0.5f);
        float squares = 0;
        for (int64_t i = 0; i < width; ++i) squares += total[i] * by * total[i] * by;
        const float norm = std::max(std::sqrt(squares), 1e-12f) * model.temperature_;
        for (int64_t i = 0; i < width; ++i) out[r][i] = total[i] * by / norm;
      }
    }

    const StepModel& model;
    int count = 0;
    char* states[STEP_ROWS];
    StepEvent events[STEP_ROWS];
    float* out[STEP_ROWS];
    std::vector<float> hidden, joined, scratch;
  };

  void run(std::vector<Row>& rows) const {
    Block block(*this);
    std::vector<float> unused(STEP_ROWS * width_);
    int64_t longest = 0;
    for (const Row& row : rows) longest = std::max(longest, row.length);
    for (int64_t t = 0; t < longest; ++t) {
      block.clear();
      for (Row& row : rows) {
        if (t >= row.length) continue;
        take(row, t, block, unused.data());
        if (block.count == STEP_ROWS) block.run(), block.clear();
      }
      block.run();
    }
  }

  // Without times an event enters the state as it comes; with them it closes the one before.
  void take(Row& row, int64_t t, Block& block, float* unused) const {
    const int64_t item = row.items[t];
    if (!timed_)
      return block.add(row.state, {item, 0, 0}, reinterpret_cast<float*>(row.state));
    OpenEvent open;
    std::memcpy(&open, row.state + bytes_, sizeof open);
    const double time = row.times[t];
    if (open.item != PAD)
      block.add(row.state, closed(open, time), unused + block.count * width_);
    open = {item, time, time - open.time};
    std::memcpy(row.state + bytes_, &open, sizeof open);
  }

  StepEvent closed(const OpenEvent& open, double next) const {
    return {open.item, bucket(open.previous), bucket(next - open.time)};
  }

  // As layers/time.py: how many bounds are not above it; the last bucket is "unknown".
  int32_t bucket(double seconds) const {
    if (!(seconds >= 0)) return static_cast<int32_t>(bounds_.size()) + 1;
    return static_cast<int32_t>(std::upper_bound(bounds_.begin(), bounds_.end(), seconds) -
                                bounds_.begin());
  }

  void check_item(int64_t item) const {
    if (item < 1 || item > items_) throw std::invalid_argument("an event has an unknown item");
  }

  const char* content(const nb::handle& state) const {
    check(PyBytes_Check(state.ptr()) && PyBytes_GET_SIZE(state.ptr()) == state_bytes(),
          "a state has another size than this model's");
    return PyBytes_AS_STRING(state.ptr());
  }

  // A new bytes object with the same content, to be changed before anybody else sees it.
  char* copied(const nb::handle& state, nb::list& to) const {
    const char* from = content(state);
    PyObject* made = PyBytes_FromStringAndSize(nullptr, state_bytes());
    if (!made) throw nb::python_error();
    std::memcpy(PyBytes_AS_STRING(made), from, state_bytes());
    to.append(nb::steal(made));
    return PyBytes_AS_STRING(made);
  }

  template <typename Array>
  const float* keep(const Array& given) {
    kept_.push_back(nb::cast(given));
    return given.data();
  }
  const float* rows(const Table& given) {
    check(static_cast<int64_t>(given.shape(1)) == width_, "vectors have the width of the model");
    return keep(given);
  }
  const float* vector(const Floats& given, int64_t size) {
    check(static_cast<int64_t>(given.size()) == size, "a vector has another size");
    made_.emplace_back(given.data(), given.data() + size);
    return made_.back().data();
  }
  Norm normed(const Table& given, double epsilon) {  // weights, then biases
    check(given.shape(0) == 2, "a norm has weights and biases");
    rows(given);
    made_.emplace_back(given.data(), given.data() + 2 * width_);
    return {made_.back().data(), made_.back().data() + width_, static_cast<float>(epsilon)};
  }
  Linear packed(const Weights& given, int64_t in, int64_t out) {
    const auto& [weight, bias] = given;
    check(static_cast<int64_t>(weight.shape(0)) == out &&
              static_cast<int64_t>(weight.shape(1)) == in &&
              static_cast<int64_t>(bias.size()) == out,
          "a linear layer has another size");
    const int64_t tile = kernels(8).tile, full = (out + tile - 1) / tile * tile;
    made_.emplace_back(full * in);
    float* to = made_.back().data();
    for (int64_t n = 0; n < out; ++n)
      for (int64_t k = 0; k < in; ++k)
        to[(n / tile * in + k) * tile + n % tile] = weight.data()[n * in + k];
    made_.emplace_back(full);
    std::copy(bias.data(), bias.data() + out, made_.back().data());
    return {in, out, to, made_.back().data()};
  }

  int64_t width_, items_, bytes_ = 0;
  bool timed_;
  std::vector<double> bounds_;
  std::vector<StepStack> stacks_;
  std::deque<std::vector<StepLayer>> layers_;  // whose addresses stay
  std::vector<int64_t> offsets_;
  const float* weigh_ = nullptr;
  float temperature_ = 1;
  Linear fuse_;
  std::deque<std::vector<float>> made_;
  std::vector<nb::object> kept_;
};

using Scores = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Chosen = nb::ndarray<int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Mask = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Best = std::pair<float, int64_t>;

bool before(const Best& a, const Best& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

// The best k of a row, best first, equal scores by index. Only what beats the k-th so far is kept.
void best_of(const float* scores, int64_t size, int64_t k, std::vector<Best>& best) {
  constexpr int64_t STRIDE = 64;
  float bound = -std::numeric_limits<float>::infinity();
  best.clear();
  const size_t room = static_cast<size_t>(2 * k + STRIDE);
  for (int64_t first = 1; first < size; first += STRIDE) {  // item 0 is padding
    const int64_t last = std::min(size, first + STRIDE);
    bool any = false;
    for (int64_t i = first; i < last; ++i) any |= scores[i] > bound;  // NaN is not
    if (!any) continue;
    for (int64_t i = first; i < last; ++i)
      if (scores[i] > bound) best.emplace_back(scores[i], i);
    if (best.size() < room) continue;
    std::nth_element(best.begin(), best.begin() + (k - 1), best.end(), before);
    best.resize(k);
    bound = best.back().first;
  }
  const size_t shown = std::min(best.size(), static_cast<size_t>(k));
  std::partial_sort(best.begin(), best.begin() + shown, best.end(), before);
  best.resize(shown);
}

// Of each row the best k[row] items, 0 after the last one, and their scores. `hide` has the items
// that a row must not show, the first row's first; `masks` which items it may show at all, or None.
// Changes the scores.
void choose(const Scores& scores, const Integers& hide, const Integers& hidden_per_row,
            const nb::list& masks, const Integers& k, const Chosen& items, const Hidden& values) {
  const int64_t rows = scores.shape(0), size = scores.shape(1), most = items.shape(1);
  check(static_cast<int64_t>(k.size()) == rows && static_cast<int64_t>(masks.size()) == rows &&
            static_cast<int64_t>(hidden_per_row.size()) == rows &&
            static_cast<int64_t>(items.shape(0)) == rows &&
            static_cast<int64_t>(values.shape(0)) == rows &&
            static_cast<int64_t>(values.shape(1)) == most,
        "there is one of each per row");
  std::vector<std::optional<Mask>> shown;
  int64_t total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    check(k.data()[r] >= 1 && k.data()[r] <= most, "k must fit the result");
    check(hidden_per_row.data()[r] >= 0, "counts are not negative");
    total += hidden_per_row.data()[r];
    shown.push_back(masks[r].is_none() ? std::optional<Mask>{} : nb::cast<Mask>(masks[r]));
    check(!shown.back() || static_cast<int64_t>(shown.back()->size()) == size,
          "a mask has one entry per score");
  }
  check(total == static_cast<int64_t>(hide.size()), "the counts must sum to the hidden items");
  for (size_t i = 0; i < hide.size(); ++i)
    check(hide.data()[i] >= 0 && hide.data()[i] < size, "a hidden item is unknown");
  const nb::gil_scoped_release released;
  const float nothing = -std::numeric_limits<float>::infinity();
  const int64_t* hiding = hide.data();
  std::vector<Best> best;
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scores.data() + r * size;
    for (int64_t i = 0; i < hidden_per_row.data()[r]; ++i) row[*hiding++] = nothing;
    if (shown[r]) {
      const uint8_t* mask = shown[r]->data();
      for (int64_t i = 0; i < size; ++i) row[i] = mask[i] ? row[i] : nothing;
    }
    best_of(row, size, k.data()[r], best);
    for (int64_t i = 0; i < most; ++i) {
      const bool there = i < static_cast<int64_t>(best.size());
      items.data()[r * most + i] = there ? best[i].second : PAD;
      values.data()[r * most + i] = there ? best[i].first : nothing;
    }
  }
}

}  // namespace

void define_step_model(nb::module_& module) {
  nb::set_leak_warnings(false);  // a thread that ends with the process may still hold a model
  nb::class_<StepModel>(module, "StepModel")
      .def(nb::init<int64_t, int64_t, const std::optional<Doubles>&>(), nb::arg(), nb::arg(),
           nb::arg().none())
      .def("add_stack", &StepModel::add_stack, nb::arg("rule").none(), nb::arg("heads"),
           nb::arg("pre_norm"), nb::arg("item"), nb::arg("position"), nb::arg("previous").none(),
           nb::arg("following").none(), nb::arg("norm"), nb::arg("epsilon"),
           nb::arg("final_norm").none())
      .def("add_layer", &StepModel::add_layer, nb::arg("project_in"), nb::arg("project_out"),
           nb::arg("widen"), nb::arg("narrow"), nb::arg("gate").none(), nb::arg("attention"),
           nb::arg("feed_forward"), nb::arg("epsilon"), nb::arg("head_scale").none(),
           nb::arg("kept").none())
      .def("add_mean", &StepModel::add_mean)
      .def("add_fusion", &StepModel::add_fusion)
      .def_prop_ro("state_bytes", &StepModel::state_bytes)
      .def("advance", &StepModel::advance)
      .def("hidden", &StepModel::hidden);
  module.def("choose", &choose);
}

}  // namespace linrec
