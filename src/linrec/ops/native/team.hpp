// Threads for one call: torch's own, where they can be had.
#pragma once

#include <cstdint>

namespace linrec {

// Calls work(context, i) for i in [0, units), each once, on at most `threads` threads.
void share(int64_t units, int threads, void (*work)(void*, int64_t), void* context);

}  // namespace linrec
