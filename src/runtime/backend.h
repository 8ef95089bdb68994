#pragma once
#include <memory>

#include "runtime/executable.h"

namespace tessera {

// A device of one rank: all that the rest of the program knows of it. What it makes (states,
// arenas, executables) goes together and with nothing of another backend, and does not outlive it.
class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // UserError for a graph that the device cannot run.
  virtual std::unique_ptr<Executable> compile(const Graph& graph) = 0;
  virtual std::unique_ptr<State> make_state() = 0;
  virtual std::unique_ptr<Arenas> make_arenas(const ProgramMemory& memory) = 0;

  // Whether runs take an observer: else values of single nodes are not to be had.
  virtual bool shows_values() const { return true; }
  // Whether a run may go on when start() has returned. Who reads results then reads them one step
  // late, so that the device never waits for the host. The same on all ranks of a job.
  virtual bool runs_ahead() const { return false; }
};

}  // namespace tessera
