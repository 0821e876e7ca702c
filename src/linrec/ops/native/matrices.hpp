// Products of small matrices of constant sizes, in the widest registers of the instruction set.
//
// Compiled once for each instruction set, named by LINREC_ISA. Nothing here may be a template of
// the standard library: the linker keeps one copy of those, perhaps the one for a newer CPU.
#pragma once

#include <math.h>

#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(LINREC_SANITIZE)  // instrumented code is large: one copy of each function will do
#define LINREC_INLINE inline
#elif defined(_MSC_VER) && !defined(__clang__)
#define LINREC_INLINE __forceinline
#else
#define LINREC_INLINE inline __attribute__((always_inline))
#endif

// Small arrays stay in registers only if the loops over them are unrolled.
#if defined(LINREC_SANITIZE)
#define LINREC_UNROLL
#elif defined(__clang__)
#define LINREC_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define LINREC_UNROLL _Pragma("GCC unroll 16")
#else
#define LINREC_UNROLL
#endif

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define LINREC_SHUFFLES 1
#endif
#endif

namespace linrec::LINREC_ISA {

// positions per chunk: their weights on each other are a [C, C] matrix
constexpr int C = LINREC_LANES > 8 ? LINREC_LANES : 8;

constexpr int min(int a, int b) { return a < b ? a : b; }

#if defined(__GNUC__)
template <int L>
struct Vector {
  typedef float Type __attribute__((vector_size(L * 4), aligned(4), may_alias));
};
#else
template <int L>
struct Vector {
  struct Type {
    float x[L];
    Type& operator+=(const Type& o) {
      for (int i = 0; i < L; ++i) x[i] += o.x[i];
      return *this;
    }
    friend Type operator+(Type a, const Type& o) { return a += o; }
    friend Type operator*(float a, const Type& o) {
      Type to;
      for (int i = 0; i < L; ++i) to.x[i] = a * o.x[i];
      return to;
    }
  };
};
#endif

template <int L>
LINREC_INLINE typename Vector<L>::Type* lane(float* x) {
  return reinterpret_cast<typename Vector<L>::Type*>(x);
}
template <int L>
LINREC_INLINE const typename Vector<L>::Type* lane(const float* x) {
  return reinterpret_cast<const typename Vector<L>::Type*>(x);
}

// Which part of the left matrix is not zero.
enum class Part { all, lower, upper };

// What becomes of the matrix that a product is written to: overwritten, or scaled and added to.
struct Overwrite {
  static constexpr bool OVERWRITES = true;
};
struct Scaled {
  static constexpr bool OVERWRITES = false;
  float weight;
  float at(int) const { return weight; }
};
struct ScaledRows {
  static constexpr bool OVERWRITES = false;
  const float* weights;
  float at(int row) const { return weights[row]; }
};

// out[m] = scale out[m] + sum over k of a[m, k] b[k], where a is [M, K] or, TRANSPOSED, [K, M].
// Rows of a and b may have a stride.
template <int M, int K, int N, bool TRANSPOSED = false, Part PART = Part::all,
          typename Old = Overwrite>
LINREC_INLINE void product(const float* a, const float* b, float* out, Old old = {},
                           int64_t a_row = TRANSPOSED ? M : K, int64_t b_row = N) {
  constexpr int L = min(N, LINREC_LANES), TILE_LANES = N / L >= 2 ? 2 : 1;
  constexpr int TILE_ROWS = min(M, TILE_LANES == 2 && LINREC_LANES < 16 ? 4 : 8);
  static_assert(M % TILE_ROWS == 0 && N % (L * TILE_LANES) == 0, "tiles must cover the matrix");
  using Lane = typename Vector<L>::Type;
  for (int m = 0; m < M; m += TILE_ROWS) {
    const int first = PART == Part::upper ? m : 0;
    const int last = PART == Part::lower ? min(m + TILE_ROWS, K) : K;
    for (int n = 0; n < N; n += L * TILE_LANES) {
      Lane sum[TILE_ROWS][TILE_LANES] = {};
      if constexpr (!Old::OVERWRITES)
        LINREC_UNROLL
        for (int i = 0; i < TILE_ROWS; ++i)
          LINREC_UNROLL
          for (int j = 0; j < TILE_LANES; ++j)
            sum[i][j] = old.at(m + i) * *lane<L>(out + (m + i) * N + n + j * L);
      for (int k = first; k < last; ++k) {
        Lane row[TILE_LANES];
        LINREC_UNROLL
        for (int j = 0; j < TILE_LANES; ++j) row[j] = *lane<L>(b + k * b_row + n + j * L);
        LINREC_UNROLL
        for (int i = 0; i < TILE_ROWS; ++i) {
          const float factor = TRANSPOSED ? a[k * a_row + m + i] : a[(m + i) * a_row + k];
          LINREC_UNROLL
          for (int j = 0; j < TILE_LANES; ++j) sum[i][j] += factor * row[j];
        }
      }
      LINREC_UNROLL
      for (int i = 0; i < TILE_ROWS; ++i)
        LINREC_UNROLL
        for (int j = 0; j < TILE_LANES; ++j) *lane<L>(out + (m + i) * N + n + j * L) = sum[i][j];
    }
  }
}

// to[N, M] = from[M, N]^T
template <int M, int N>
LINREC_INLINE void transpose(const float* from, float* to, int64_t row = N) {
#if LINREC_SHUFFLES
  using Lane = typename Vector<8>::Type;
  for (int m = 0; m < M; m += 8)
    for (int n = 0; n < N; n += 8) {
      Lane a[8], b[8];
      LINREC_UNROLL
      for (int i = 0; i < 8; ++i) a[i] = *lane<8>(from + (m + i) * row + n);
      LINREC_UNROLL
      for (int i = 0; i < 8; i += 2) {
        b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
      }
      LINREC_UNROLL
      for (int i = 0; i < 8; i += 4)
        LINREC_UNROLL
        for (int j = 0; j < 2; ++j) {
          const Lane x = b[i + j], y = b[i + j + 2];
          a[i + j] = __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13);
          a[i + j + 2] = __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
        }
      LINREC_UNROLL
      for (int j = 0; j < 4; ++j) {
        b[j] = __builtin_shufflevector(a[j], a[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        b[j + 4] = __builtin_shufflevector(a[j], a[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
      }
      LINREC_UNROLL
      for (int i = 0; i < 8; ++i) *lane<8>(to + (n + i) * M + m) = b[i];
    }
#else
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) to[n * M + m] = from[m * row + n];
#endif
}

template <int M, int N>
LINREC_INLINE void scale_rows(const float* from, const float* factor, float* to,
                              int64_t row = N) {
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) to[m * N + n] = factor[m] * from[m * row + n];
}

// to[m] = a[m] . b[m]
template <int M, int N>
LINREC_INLINE void dots(const float* a, const float* b, float* to) {
#if LINREC_SHUFFLES
  using Lane = typename Vector<8>::Type;
  for (int m = 0; m < M; m += 8) {  // eight rows' sums in one register, by pairwise folding
    Lane s[8];
    LINREC_UNROLL
    for (int i = 0; i < 8; ++i) {
      const float *x = a + (m + i) * N, *y = b + (m + i) * N;
      s[i] = *lane<8>(x) * *lane<8>(y);
      for (int n = 8; n < N; n += 8) s[i] += *lane<8>(x + n) * *lane<8>(y + n);
    }
    LINREC_UNROLL
    for (int i = 0; i < 4; ++i)
      s[i] = __builtin_shufflevector(s[i], s[i + 4], 0, 1, 2, 3, 8, 9, 10, 11) +
             __builtin_shufflevector(s[i], s[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    LINREC_UNROLL
    for (int i = 0; i < 2; ++i)
      s[i] = __builtin_shufflevector(s[i], s[i + 2], 0, 1, 8, 9, 4, 5, 12, 13) +
             __builtin_shufflevector(s[i], s[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    *lane<8>(to + m) = __builtin_shufflevector(s[0], s[1], 0, 8, 2, 10, 4, 12, 6, 14) +
                       __builtin_shufflevector(s[0], s[1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
#else
  for (int m = 0; m < M; ++m) {
    float sums[8] = {};  // per lane, which the compiler can vectorise
    for (int n = 0; n < N; n += 8)
      for (int l = 0; l < 8; ++l) sums[l] += a[m * N + n + l] * b[m * N + n + l];
    for (int half = 4; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) sums[l] += sums[l + half];
    to[m] = sums[0];
  }
#endif
}

#if defined(__AVX512F__)
LINREC_INLINE __m512 rough_inverse_root(__m512 x) { return _mm512_rsqrt14_ps(x); }
#elif defined(__AVX2__)
LINREC_INLINE __m256 rough_inverse_root(__m256 x) { return _mm256_rsqrt_ps(x); }
#endif

// x = 1 / sqrt(x) for x > 0. The CPU's estimate and one step of Newton's take a third of the time
// of a root and a division.
template <int SIZE>
LINREC_INLINE void inverse_roots(float* x) {
#if defined(__AVX2__)
  if constexpr (SIZE % LINREC_LANES == 0) {
    using Lane = typename Vector<LINREC_LANES>::Type;
    for (int i = 0; i < SIZE; i += LINREC_LANES) {
      const Lane given = *lane<LINREC_LANES>(x + i);
      // Newton's step would make NaN of infinity
      const Lane finite = given > 3e38f ? Lane{} + 3e38f : given;
      const Lane y = rough_inverse_root(finite);
      *lane<LINREC_LANES>(x + i) = y + 0.5f * y * (1.0f - finite * y * y);
    }
    return;
  }
#endif
  for (int i = 0; i < SIZE; ++i) x[i] = 1.0f / sqrtf(x[i]);
}

// Destroys x.
template <int SIZE>
LINREC_INLINE float sum(float* x) {
  for (int half = SIZE / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) x[i] += x[i + half];
  return x[0];
}

template <int SIZE>
LINREC_INLINE void copy(const float* from, float* to) {
  for (int i = 0; i < SIZE; ++i) to[i] = from[i];
}

template <int SIZE>
LINREC_INLINE void add(const float* from, float* to) {
  for (int i = 0; i < SIZE; ++i) to[i] += from[i];
}

LINREC_INLINE void zero(float* to, int64_t size) {
  for (int64_t i = 0; i < size; ++i) to[i] = 0.0f;
}

}  // namespace linrec::LINREC_ISA
