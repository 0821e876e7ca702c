// What a kernel is given: tensors by pointer and strides, nothing of torch.
#pragma once

#include <cstdint>

namespace linrec {

struct bfloat16 {
  uint16_t bits;
};

// [batch, heads, positions, width]; the width is contiguous
template <typename T>
struct Rows {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // strides, in numbers

  T* at(int64_t b, int64_t h) const { return data + b * batch + h * head; }
};

template <typename T>
struct Forward {
  int64_t batch, heads, length, width;
  Rows<const T> q, k, v;
  Rows<T> out;
  const uint8_t* keep;  // [batch, length] or null
  const float* decay;   // log g of each head, or null
  bool elu, causal;
};

template <typename T>
struct Backward {
  Forward<T> forward;  // its `out` is not used
  Rows<const T> dout;
  Rows<T> dq, dk, dv;
  double* ddecay;  // [batch, heads] or null
};

}  // namespace linrec
