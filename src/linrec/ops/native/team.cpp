#include "team.hpp"

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

struct Share {
  std::atomic<int64_t> next{0};
  int64_t units;
  void (*work)(void*, int64_t);
  void* context;
};

void take_part(void* shared) {
  Share& share = *static_cast<Share*>(shared);
  for (int64_t i = share.next++; i < share.units; i = share.next++) share.work(share.context, i);
}

using Parallel = void (*)(void (*)(void*), void*, unsigned threads, unsigned flags);

// OpenMP's entry as GCC calls it, from the library that torch has loaded for itself (LLVM's and
// Intel's have it too). Idle OpenMP threads spin for a while, and a second team would have to share
// the cores with them; this way it is the same team.
Parallel torch_team() {
#if defined(_WIN32)
  return nullptr;
#else
  static const Parallel found = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  return found;
#endif
}

// A fork()ed child has none of its parent's threads, and OpenMP would wait for them for ever.
bool forked = false;

[[maybe_unused]] const bool watched = [] {
#if !defined(_WIN32)
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif
  return true;
}();

}  // namespace

void share(int64_t units, int threads, void (*work)(void*, int64_t), void* context) {
  Share shared;
  shared.units = units, shared.work = work, shared.context = context;
  const int helpers = static_cast<int>(std::min<int64_t>(threads, units)) - 1;
  if (helpers <= 0) return take_part(&shared);
  if (torch_team() && !forked) return torch_team()(take_part, &shared, helpers + 1, 0);
  std::vector<std::thread> others;
  for (int i = 0; i < helpers; ++i) others.emplace_back(take_part, &shared);
  take_part(&shared);
  for (auto& other : others) other.join();
}

}  // namespace linrec
