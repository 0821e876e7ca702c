// Products of small matrices whose sizes the compiler knows, in the widest registers at hand.
//
// Compiled once for each instruction set, named by LINREC_ISA. Nothing here may be a template of
// the standard library: the linker keeps one copy of those, and it could be the one for a newer CPU.
#pragma once

#include <cstdint>

#if defined(_MSC_VER) && !defined(__clang__)
#define LINREC_INLINE __forceinline
#else
#define LINREC_INLINE inline __attribute__((always_inline))
#endif

// Small arrays stay in registers only if the loops over them are unrolled.
#if defined(__clang__)
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

// positions that are taken together: their weights on each other are a small matrix
constexpr int C = LINREC_LANES > 8 ? LINREC_LANES : 8;

constexpr int at_most(int a, int b) { return a < b ? a : b; }

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
    friend Type operator*(float a, const Type& o) {
      Type to;
      for (int i = 0; i < L; ++i) to.x[i] = a * o.x[i];
      return to;
    }
  };
};
#endif

// Which part of the left matrix is not zero.
enum class Part { all, lower, upper };

// out[m] = kept * out[m] + sum over k of a[m, k] b[k], where a is [M, K] or, TURNED, [K, M].
// FRESH takes nothing from out.
template <int M, int K, int N, bool TURNED, bool FRESH, Part PART>
LINREC_INLINE void product(const float* a, const float* b, float* out, float kept = 1.0f) {
  constexpr int L = at_most(N, LINREC_LANES), WIDE = N / L >= 2 ? 2 : 1;
  constexpr int TALL = at_most(M, WIDE == 2 && LINREC_LANES < 16 ? 4 : 8);
  static_assert(M % TALL == 0 && N % (L * WIDE) == 0, "tiles must cover the matrix");
  using Lane = typename Vector<L>::Type;
  for (int m = 0; m < M; m += TALL) {
    const int first = PART == Part::upper ? m : 0;
    const int last = PART == Part::lower ? at_most(m + TALL, K) : K;
    for (int n = 0; n < N; n += L * WIDE) {
      Lane sum[TALL][WIDE] = {};
      if constexpr (!FRESH)
        LINREC_UNROLL
        for (int i = 0; i < TALL; ++i)
          LINREC_UNROLL
          for (int j = 0; j < WIDE; ++j)
            sum[i][j] = kept * *reinterpret_cast<const Lane*>(out + (m + i) * N + n + j * L);
      for (int k = first; k < last; ++k) {
        Lane row[WIDE];
        LINREC_UNROLL
        for (int j = 0; j < WIDE; ++j)
          row[j] = *reinterpret_cast<const Lane*>(b + k * N + n + j * L);
        LINREC_UNROLL
        for (int i = 0; i < TALL; ++i) {
          const float factor = TURNED ? a[k * M + m + i] : a[(m + i) * K + k];
          LINREC_UNROLL
          for (int j = 0; j < WIDE; ++j) sum[i][j] += factor * row[j];
        }
      }
      LINREC_UNROLL
      for (int i = 0; i < TALL; ++i)
        LINREC_UNROLL
        for (int j = 0; j < WIDE; ++j)
          *reinterpret_cast<Lane*>(out + (m + i) * N + n + j * L) = sum[i][j];
    }
  }
}

// to[N, M] = from[M, N]^T
template <int M, int N>
inline void transpose(const float* from, float* to) {
#if LINREC_SHUFFLES
  using Lane = typename Vector<8>::Type;
  for (int m = 0; m < M; m += 8)
    for (int n = 0; n < N; n += 8) {
      Lane a[8], b[8];
      LINREC_UNROLL
      for (int i = 0; i < 8; ++i) a[i] = *reinterpret_cast<const Lane*>(from + (m + i) * N + n);
      LINREC_UNROLL
      for (int i = 0; i < 8; i += 2) {
        b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
      }
      LINREC_UNROLL
      for (int i = 0; i < 8; i += 4)
        LINREC_UNROLL
        for (int j = 0; j < 2; ++j) {
          a[i + j] = __builtin_shufflevector(b[i + j], b[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
          a[i + j + 2] = __builtin_shufflevector(b[i + j], b[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
      LINREC_UNROLL
      for (int j = 0; j < 4; ++j) {
        b[j] = __builtin_shufflevector(a[j], a[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        b[j + 4] = __builtin_shufflevector(a[j], a[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
      }
      LINREC_UNROLL
      for (int i = 0; i < 8; ++i) *reinterpret_cast<Lane*>(to + (n + i) * M + m) = b[i];
    }
#else
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) to[n * M + m] = from[m * N + n];
#endif
}

template <int M, int N>
inline void scale_rows(const float* from, const float* factor, float* to) {
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) to[m * N + n] = factor[m] * from[m * N + n];
}

// to[m] = a[m] . b[m]
template <int M, int N>
inline void dots(const float* a, const float* b, float* to) {
  constexpr int L = at_most(N, LINREC_LANES);
  for (int m = 0; m < M; ++m) {
    float sums[L] = {};  // lane by lane: the order of additions is ours to choose
    for (int n = 0; n < N; n += L)
      for (int l = 0; l < L; ++l) sums[l] += a[m * N + n + l] * b[m * N + n + l];
    for (int half = L / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) sums[l] += sums[l + half];
    to[m] = sums[0];
  }
}

template <int SIZE>
inline void copy(const float* from, float* to) {
  for (int i = 0; i < SIZE; ++i) to[i] = from[i];
}

template <int SIZE>
inline void add(const float* from, float* to) {
  for (int i = 0; i < SIZE; ++i) to[i] += from[i];
}

inline void zero(float* to, int64_t size) {
  for (int64_t i = 0; i < size; ++i) to[i] = 0.0f;
}

}  // namespace linrec::LINREC_ISA
