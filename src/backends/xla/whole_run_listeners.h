#pragma once
#include <vector>

#include "runtime/executable.h"

namespace tessera::xla {

// Who hears of runs that are one thing to do: XLA does not say when what in them is done.
class WholeRunListeners {
 public:
  bool add(RunListener& listener) {
    remove(listener);
    listeners_.push_back(&listener);
    return true;
  }
  void remove(RunListener& listener) { std::erase(listeners_, &listener); }

  void begins(const Executable& program) const {
    for (RunListener* listener : listeners_) listener->begins(program);
  }
  void done() const {
    for (RunListener* listener : listeners_) {
      listener->done(0, nullptr);
      listener->ends();
    }
  }

 private:
  std::vector<RunListener*> listeners_;
};

}  // namespace tessera::xla
