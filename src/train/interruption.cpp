#include "train/interruption.h"

#include <csignal>

namespace tessera {
namespace {
volatile std::sig_atomic_t requested = 0;

extern "C" void on_signal(int signal) {
  if (requested && signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);  // acts when this handler returns
  }
  requested = 1;
}
}  // namespace

void catch_interruptions() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return requested != 0; }
void clear_interruption() { requested = 0; }

}  // namespace tessera
