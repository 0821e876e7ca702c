// Threads for one call: torch's own, where they can be used.
#pragma once

#include <cstdint>

namespace linrec {

// Calls work(context, i) for i in [0, tasks), each once, on at most `threads` threads.
void parallel_for(int64_t tasks, int threads, void (*work)(void*, int64_t), void* context);

}  // namespace linrec
