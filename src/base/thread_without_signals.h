#pragma once
#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace tessera {

// A thread that gets no signals from its first instruction on: they are for other threads.
template <class Work>
std::thread thread_without_signals(Work work) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace tessera
