// A thread's scratch memory, handed out piece by piece.
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include <cstdint>

namespace linrec::LINREC_ISA {

// Without memory it only counts: buffers are declared once, as structs that take their pieces from
// an arena, so that what is measured is what is used (`floats_for`).
class Arena {
 public:
  Arena() = default;
  Arena(float* memory, int64_t capacity) : memory_(memory), capacity_(capacity) {}

  // Each piece begins at a multiple of 64 bytes, if the memory does.
  float* take(int64_t size) {
    float* taken = memory_ ? memory_ + used_ : nullptr;
    used_ += (size + 15) / 16 * 16;
    if (memory_ && used_ > capacity_) overflow();
    return taken;
  }

  int64_t used() const { return used_; }

 private:
  [[noreturn]] void overflow() const {
    fprintf(stderr, "linrec: %lld floats of scratch memory exceed the %lld measured\n",
            static_cast<long long>(used_), static_cast<long long>(capacity_));
    abort();
  }

  float* memory_ = nullptr;
  int64_t capacity_ = 0, used_ = 0;
};

// How many floats the buffers of a sequence of so many chunks take.
template <typename Buffers>
int64_t floats_for(int64_t chunks) {
  Arena counted;
  Buffers(chunks, counted);
  return counted.used();
}

}  // namespace linrec::LINREC_ISA
