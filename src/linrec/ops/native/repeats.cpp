// The repeat head of one instruction set; compiled once for each, see CMakeLists.txt.
#include "repeats.hpp"

#include "features.hpp"

namespace linrec::LINREC_ISA {

namespace {

constexpr int LANES = 16;  // pairs at a time

// log(1 + y) for y >= 0, exact near zero too; the polynomial is the one of Cephes.
LINREC_INLINE float log_one_plus(float y) {
  const float u = 1.0f + y;
  uint32_t bits;
  memcpy(&bits, &u, sizeof bits);
  const uint32_t whole = (bits - 0x3f3504f3u) >> 23;  // u = 2^whole m, m from sqrt(1/2) to sqrt(2)
  bits -= whole << 23;
  float m;
  memcpy(&m, &bits, sizeof m);
  const float x = m - 1.0f, z = x * x, e = static_cast<float>(static_cast<int32_t>(whole));
  float p = 7.0376836292e-2f;
  p = p * x - 1.1514610310e-1f;
  p = p * x + 1.1676998740e-1f;
  p = p * x - 1.2420140846e-1f;
  p = p * x + 1.4249322787e-1f;
  p = p * x - 1.6668057665e-1f;
  p = p * x + 2.0000714765e-1f;
  p = p * x - 2.4999993993e-1f;
  p = p * x + 3.3333331174e-1f;
  p = p * x * z - 2.12194440e-4f * e - 0.5f * z;
  return (x + p + 0.693359375f * e) + (y - (u - 1.0f)) / u;  // the last: what 1 + y rounded away
}

// 2^-x for x >= 0; nothing is left after 87 half-lives, where it would not be a normal number
LINREC_INLINE float halved(float x) {
  const Exponential e = exponential(x * -0.693147181f);
  const float anything = x > 87.0f ? 0.0f : 1.0f;  // a factor: no branch, so that loops vectorise
  return (e.power * e.rest + e.power) * anything;
}

// Up to LANES pairs of one target, item by item in the lanes; those beyond have no counts.
struct Pairs {
  alignas(64) float counts[MAX_HALF_LIVES][LANES];
  alignas(64) float events[LANES], seconds[LANES];

  LINREC_INLINE Pairs(const Past& past, int64_t target, const int64_t* newest, int64_t count) {
    for (int64_t l = 0; l < LANES; ++l) {
      if (l >= count) {
        for (int64_t k = 0; k < past.half_lives; ++k) counts[k][l] = 0.0f;
        events[l] = seconds[l] = 0.0f;
        continue;
      }
      const int64_t row = newest[l];
      for (int64_t k = 0; k < past.half_lives; ++k)
        counts[k][l] = past.sums[row * past.half_lives + k];
      events[l] = static_cast<float>(past.ends[target] - 1 - past.places[row]);
      if (!past.times) continue;
      const double age = past.moments[target] - past.times[row];
      // unknown: an event of unknown time has no counts that decay with time
      seconds[l] = age != age ? INFINITY : age < 0 ? 0.0f : static_cast<float>(age);
    }
  }

  // log(1 + count) of each pair, for one half-life
  LINREC_INLINE void logarithms(const Past& past, int64_t k, float* to) const {
    const float* age = k < past.in_events ? events : seconds;
    const float rate = past.rates[k];
    for (int l = 0; l < LANES; ++l) to[l] = log_one_plus(counts[k][l] * halved(age[l] * rate));
  }
};

void gains(const Past& past, int64_t target, const float* weights, float* values) {
  const int64_t* newest = past.newest + past.starts[target];
  for (int64_t i = 0; i < past.counts[target]; i += LANES) {
    const int64_t count = past.counts[target] - i < LANES ? past.counts[target] - i : LANES;
    const Pairs pairs(past, target, newest + i, count);
    alignas(64) float total[LANES], logs[LANES];
    for (int l = 0; l < LANES; ++l) total[l] = weights[0];
    for (int64_t k = 0; k < past.half_lives; ++k) {
      pairs.logarithms(past, k, logs);
      for (int l = 0; l < LANES; ++l) total[l] += weights[1 + k] * logs[l];
    }
    for (int64_t l = 0; l < count; ++l) values[i + l] = total[l];
  }
}

void to_weights(const Past& past, int64_t target, const float* gradient, float* weights) {
  const int64_t* newest = past.newest + past.starts[target];
  alignas(64) float totals[1 + MAX_HALF_LIVES][LANES] = {};
  for (int64_t i = 0; i < past.counts[target]; i += LANES) {
    const int64_t count = past.counts[target] - i < LANES ? past.counts[target] - i : LANES;
    const Pairs pairs(past, target, newest + i, count);
    alignas(64) float given[LANES] = {}, logs[LANES];
    for (int64_t l = 0; l < count; ++l) given[l] = gradient[i + l];
    for (int l = 0; l < LANES; ++l) totals[0][l] += given[l];
    for (int64_t k = 0; k < past.half_lives; ++k) {
      pairs.logarithms(past, k, logs);
      for (int l = 0; l < LANES; ++l) totals[1 + k][l] += given[l] * logs[l];
    }
  }
  for (int64_t k = 0; k <= past.half_lives; ++k) weights[k] = sum<LANES>(totals[k]);
}

}  // namespace

const RepeatKernels& repeat_kernels() {
  static constexpr RepeatKernels of{gains, to_weights};
  return of;
}

}  // namespace linrec::LINREC_ISA
