#include "parallel_for.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#if !defined(_WIN32)
#include <dlfcn.h>
#include <pthread.h>
#endif

namespace linrec {
namespace {

struct Loop {
  std::atomic<int64_t> next{0};
  int64_t tasks;
  void (*work)(void*, int64_t);
  void* context;
};

void run_worker(void* shared) {
  Loop& loop = *static_cast<Loop*>(shared);
  for (int64_t i = loop.next++; i < loop.tasks; i = loop.next++) loop.work(loop.context, i);
}

using GompParallel = void (*)(void (*)(void*), void*, unsigned threads, unsigned flags);

// The entry point of GCC's OpenMP (LLVM's and Intel's have it too), from the library that torch has
// loaded. Idle OpenMP threads spin for a while, and a second pool would compete with them for the
// cores; this way it is the same pool.
GompParallel gomp_parallel() {
#if defined(_WIN32)
  return nullptr;
#else
  static const auto entry = reinterpret_cast<GompParallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  return entry;
#endif
}

// A fork()ed child has none of its parent's threads, and OpenMP would wait for them for ever.
bool forked = false;

[[maybe_unused]] const bool registered = [] {
#if !defined(_WIN32)
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif
  return true;
}();

}  // namespace

void parallel_for(int64_t tasks, int threads, void (*work)(void*, int64_t), void* context) {
  Loop loop;
  loop.tasks = tasks, loop.work = work, loop.context = context;
  const int others = static_cast<int>(std::min<int64_t>(threads, tasks)) - 1;
  if (others <= 0) return run_worker(&loop);
  if (gomp_parallel() && !forked) return gomp_parallel()(run_worker, &loop, others + 1, 0);
  std::vector<std::thread> pool;
  for (int i = 0; i < others; ++i) pool.emplace_back(run_worker, &loop);
  run_worker(&loop);
  for (auto& thread : pool) thread.join();
}

}  // namespace linrec
