#pragma once
#include "runtime/backend.h"

namespace tessera::ref {

// The reference interpreter as a device of one rank: no plan, no arena, values wherever the
// interpreter has them. For tests of what uses a backend, and of results; slow.
class RefBackend final : public Backend {
 public:
  std::unique_ptr<Executable> compile(const Graph& graph) override;  // UserError: several ranks
  std::unique_ptr<State> make_state() override;
  std::unique_ptr<Arenas> make_arenas(const ProgramMemory& memory) override;
};

}  // namespace tessera::ref
