#pragma once
#include <algorithm>
#include <vector>

#include "runtime/executable.h"

namespace tessera::cuda {

// Who hears of a program's runs, and what they need of it.
class ExecutableListeners {
 public:
  void add(RunListener& listener) {
    remove(listener);
    listeners_.push_back(&listener);
  }
  void remove(RunListener& listener) { std::erase(listeners_, &listener); }
  bool needs(Hearing hearing) const {
    return std::any_of(listeners_.begin(), listeners_.end(),
                       [&](const RunListener* l) { return l->hearing() == hearing; });
  }
  // f(listener) for those that need this.
  template <class F>
  void tell(Hearing hearing, F f) const {
    for (RunListener* listener : listeners_)
      if (listener->hearing() == hearing) f(*listener);
  }

 private:
  std::vector<RunListener*> listeners_;
};

}  // namespace tessera::cuda
