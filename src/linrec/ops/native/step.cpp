// One event of a few users through a stack of blocks; compiled once for each instruction set.
#include "step.hpp"

#include <string.h>

#include "features.hpp"

namespace linrec::LINREC_ISA {

constexpr int TILE_LANES = STEP_TILE, TILE = TILE_LANES * LINREC_LANES;
constexpr float SMALLEST = 1.17549435e-38f;  // the smallest normal number

// y[r] = W x[r] + b for R rows
template <int R>
LINREC_INLINE void linear_of(const Linear& w, const float* x, int64_t x_row, float* y,
                             int64_t y_row) {
  using Lane = typename Vector<LINREC_LANES>::Type;
  const float* weight = w.weight;
  for (int64_t n = 0; n < w.out; n += TILE) {
    Lane sum[R][TILE_LANES];
    LINREC_UNROLL
    for (int r = 0; r < R; ++r)
      LINREC_UNROLL
      for (int j = 0; j < TILE_LANES; ++j)
        sum[r][j] = *lane<LINREC_LANES>(w.bias + n + j * LINREC_LANES);
    for (int64_t k = 0; k < w.in; ++k, weight += TILE) {
      Lane row[TILE_LANES];
      LINREC_UNROLL
      for (int j = 0; j < TILE_LANES; ++j) row[j] = *lane<LINREC_LANES>(weight + j * LINREC_LANES);
      LINREC_UNROLL
      for (int r = 0; r < R; ++r)
        LINREC_UNROLL
        for (int j = 0; j < TILE_LANES; ++j) sum[r][j] += x[r * x_row + k] * row[j];
    }
    LINREC_UNROLL
    for (int r = 0; r < R; ++r)
      LINREC_UNROLL
      for (int j = 0; j < TILE_LANES; ++j)
        *lane<LINREC_LANES>(y + r * y_row + n + j * LINREC_LANES) = sum[r][j];
  }
}

void linear(const Linear& w, int rows, const float* x, int64_t x_row, float* y, int64_t y_row) {
  // narrow registers are too few for four rows
  constexpr int MOST = LINREC_LANES >= 16 ? STEP_ROWS : 2;
  int r = 0;
  for (; r + MOST <= rows; r += MOST)
    linear_of<MOST>(w, x + r * x_row, x_row, y + r * y_row, y_row);
  for (; r < rows; ++r) linear_of<1>(w, x + r * x_row, x_row, y + r * y_row, y_row);
}

// Sums in parts, so that the compiler may vectorise them without reordering additions.
template <typename Term>
LINREC_INLINE float total(int64_t size, Term term) {
  constexpr int PARTS = 16;
  float parts[PARTS] = {};
  int64_t i = 0;
  for (; i + PARTS <= size; i += PARTS)
    for (int l = 0; l < PARTS; ++l) parts[l] += term(i + l);
  float rest = 0;
  for (; i < size; ++i) rest += term(i);
  return sum<PARTS>(parts) + rest;
}

void layer_norm(const Norm& n, const float* x, float* y, int64_t size) {
  const float mean = total(size, [&](int64_t i) { return x[i]; }) / float(size);
  const float variance =
      total(size, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / float(size);
  const float scale = 1.0f / sqrtf(variance + n.epsilon);
  for (int64_t i = 0; i < size; ++i) y[i] = (x[i] - mean) * scale * n.weight[i] + n.bias[i];
}

LINREC_INLINE float exp_of(float x) {  // x <= 0
  const Exponential e = exponential(x);
  return e.power * e.rest + e.power;
}

LINREC_INLINE float sigmoid(float x) {
  const float small = exp_of(x < 0 ? x : -x);
  return (x < 0 ? small : 1.0f) / (1.0f + small);
}

// x Phi(x); the error function by Abramowitz and Stegun 7.1.26, to 1.5e-7
LINREC_INLINE float gelu(float x) {
  const float size = (x < 0 ? -x : x) * 0.70710678f;
  const float t = 1.0f / (1.0f + 0.3275911f * size);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const float erf = 1.0f - p * t * exp_of(-size * size);
  return 0.5f * x * (1.0f + (x < 0 ? -erf : erf));
}

// One layer's part of a user's state.
struct LayerState {
  float *memory, *column, *count, *peak;
};

// The query divided by the normaliser of the sums.
LINREC_INLINE void divide(const StepStack& s, float* q, const float* column, float count,
                          int64_t d) {
  if (s.exponential_keys) {
    for (int64_t i = 0; i < d; ++i) q[i] /= column[i] > SMALLEST ? column[i] : SMALLEST;
    return;
  }
  switch (s.rule.normaliser) {
    case Normaliser::column_norm:
      for (int64_t i = 0; i < d; ++i) q[i] /= sqrtf(count * column[i] + EPSILON);
      return;
    case Normaliser::count: {
      const float by = 1.0f / sqrtf(count > 1 ? count : 1.0f);
      for (int64_t i = 0; i < d; ++i) q[i] *= by;
      return;
    }
    case Normaliser::row_sum: {
      const float by = total(d, [&](int64_t i) { return q[i] * column[i]; }) + EPSILON;
      for (int64_t i = 0; i < d; ++i) q[i] /= by;
      return;
    }
    case Normaliser::none:
      return;
  }
}

LINREC_INLINE void map_of(const Rule& rule, float* x, bool unit, int64_t d) {
  if (rule.feature_map != FeatureMap::identity)
    for (int64_t i = 0; i < d; ++i) x[i] = elu(x[i]);
  if (rule.feature_map == FeatureMap::elu_plus_one)
    for (int64_t i = 0; i < d; ++i) x[i] += 1.0f;
  if (!unit) return;
  const float by = 1.0f / sqrtf(total(d, [&](int64_t i) { return x[i] * x[i]; }) + EPSILON);
  for (int64_t i = 0; i < d; ++i) x[i] *= by;
}

LINREC_INLINE void softmax(float* x, int64_t d) {
  float top = x[0];
  for (int64_t i = 1; i < d; ++i) top = x[i] > top ? x[i] : top;
  for (int64_t i = 0; i < d; ++i) x[i] = exp_of(x[i] - top);
  const float by = 1.0f / total(d, [&](int64_t i) { return x[i]; });
  for (int64_t i = 0; i < d; ++i) x[i] *= by;
}

// One head: q, k and v of the event (q and k are overwritten), out [d]. D: the head width if it is
// one of the usual ones, else 0.
template <int D>
void attend(const StepStack& s, float* q, float* k, const float* v, float kept, LayerState state,
            float* shrink, float* out, int64_t width) {
  const int64_t d = D ? D : width;
  if (s.exponential_keys) {
    for (int64_t i = 0; i < d; ++i) {
      const float peak = k[i] > state.peak[i] ? k[i] : state.peak[i];
      shrink[i] = exp_of(state.peak[i] - peak);
      k[i] = exp_of(k[i] - peak);
      state.peak[i] = peak;
      state.column[i] = shrink[i] * state.column[i] + k[i];
    }
    softmax(q, d);
  } else {
    map_of(s.rule, k, s.rule.unit_keys, d);
    map_of(s.rule, q, s.rule.unit_queries, d);
    const bool squares = s.rule.normaliser != Normaliser::row_sum;
    for (int64_t i = 0; i < d; ++i) {
      shrink[i] = kept;
      state.column[i] = kept * state.column[i] + (squares ? k[i] * k[i] : k[i]);
    }
    if (s.rule.scaled) {
      const float scale = 1.0f / sqrtf(float(d));
      for (int64_t i = 0; i < d; ++i) q[i] *= scale;
    }
  }
  *state.count = kept * *state.count + 1.0f;
  divide(s, q, state.column, *state.count, d);
  for (int64_t j = 0; j < d; ++j) out[j] = 0.0f;
  for (int64_t i = 0; i < d; ++i) {
    float* row = state.memory + i * d;
    for (int64_t j = 0; j < d; ++j) {
      row[j] = shrink[i] * row[j] + k[i] * v[j];
      out[j] += q[i] * row[j];
    }
  }
}

using Attend = void (*)(const StepStack&, float*, float*, const float*, float, LayerState, float*,
                        float*, int64_t);

Attend attend_for(int64_t width) {
  switch (width) {
    case 8: return attend<8>;
    case 16: return attend<16>;
    case 32: return attend<32>;
    case 64: return attend<64>;
    case 128: return attend<128>;
    default: return attend<0>;
  }
}

void norm_head(const float* scale, float* x, int64_t d) {
  const float mean = total(d, [&](int64_t i) { return x[i] * x[i]; }) / float(d);
  const float by = 1.0f / sqrtf(mean + EPSILON);
  for (int64_t i = 0; i < d; ++i) x[i] *= by * scale[i];
}

// All heads of one user's event; moves `state` past this layer. q, k, v: [3, heads, d].
void attend_all(const StepStack& s, const StepLayer& layer, float* projected, float*& state,
                float* shrink, float* out) {
  const int64_t width = s.width, heads = s.heads, d = width / heads;
  float *memory = state, *column = memory + width * d, *count = column + width;
  float* peak = count + heads;
  state = peak + (s.exponential_keys ? width : 0);
  const Attend attend_one = attend_for(d);
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t at = h * d;
    attend_one(s, projected + at, projected + width + at, projected + 2 * width + at,
               layer.kept ? layer.kept[h] : 1.0f,
               {memory + at * d, column + at, count + h, peak + at}, shrink, out + at, d);
    if (layer.head_scale) norm_head(layer.head_scale + at, out + at, d);
  }
}

LINREC_INLINE void add(const float* from, float* to, int64_t size) {
  for (int64_t i = 0; i < size; ++i) to[i] += from[i];
}

// rows <= STEP_ROWS events of different users. states: where each state begins, updated in place.
// hidden: [rows, width].
void step(const StepStack& s, int rows, const StepEvent* events, char* const* states,
          float* hidden, float* scratch) {
  const int64_t w = s.width, row = padded(w), wide = padded(3 * w), inner = padded(s.inner);
  const auto take = [&](int64_t size) {
    float* taken = scratch;
    scratch += STEP_ROWS * size;
    return taken;
  };
  float *x = take(row), *normed = take(row), *attended = take(row), *gate = take(row);
  float *out = take(row), *shrink = take(row), *projected = take(wide), *widened = take(inner);
  float* memory[STEP_ROWS];
  for (int r = 0; r < rows; ++r) {
    int64_t seen;
    memcpy(&seen, states[r], sizeof seen);
    const int64_t position = seen < s.positions ? seen : s.positions - 1;
    ++seen;
    memcpy(states[r], &seen, sizeof seen);
    memory[r] = reinterpret_cast<float*>(states[r] + sizeof seen);
    float* to = out + r * row;
    const float *item = s.item + events[r].item * w, *place = s.position + position * w;
    for (int64_t i = 0; i < w; ++i) to[i] = item[i] + place[i];
    if (s.previous) {
      const float* before = s.previous + events[r].previous * w;
      const float* after = s.following + events[r].following * w;
      for (int64_t i = 0; i < w; ++i) to[i] += before[i] + after[i];
    }
    layer_norm(s.norm, to, x + r * row, w);
  }
  for (int64_t l = 0; l < s.depth; ++l) {
    const StepLayer& layer = s.layers[l];
    const float* input = x;
    if (s.pre_norm) {
      for (int r = 0; r < rows; ++r)
        layer_norm(layer.attention, x + r * row, normed + r * row, w);
      input = normed;
    }
    linear(layer.project_in, rows, input, row, projected, wide);
    for (int r = 0; r < rows; ++r)
      attend_all(s, layer, projected + r * wide, memory[r], shrink, attended + r * row);
    if (layer.gate.weight) {
      linear(layer.gate, rows, input, row, gate, row);
      for (int r = 0; r < rows; ++r)
        for (int64_t i = r * row; i < r * row + w; ++i) attended[i] *= gate[i] * sigmoid(gate[i]);
    }
    linear(layer.project_out, rows, attended, row, out, row);
    for (int r = 0; r < rows; ++r) {
      add(out + r * row, x + r * row, w);
      if (s.pre_norm) layer_norm(layer.feed_forward, x + r * row, normed + r * row, w);
      else layer_norm(layer.attention, x + r * row, x + r * row, w);
    }
    linear(layer.widen, rows, s.pre_norm ? normed : x, row, widened, inner);
    for (int r = 0; r < rows; ++r)
      for (int64_t i = r * inner; i < r * inner + s.inner; ++i) widened[i] = gelu(widened[i]);
    linear(layer.narrow, rows, widened, inner, out, row);
    for (int r = 0; r < rows; ++r) {
      add(out + r * row, x + r * row, w);
      if (!s.pre_norm) layer_norm(layer.feed_forward, x + r * row, x + r * row, w);
    }
  }
  for (int r = 0; r < rows; ++r) {
    if (s.final_norm.weight) layer_norm(s.final_norm, x + r * row, hidden + r * w, w);
    else memcpy(hidden + r * w, x + r * row, w * sizeof(float));
  }
}

}  // namespace linrec::LINREC_ISA
