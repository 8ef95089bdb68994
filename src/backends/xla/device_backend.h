#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "backends/xla/client.h"
#include "backends/xla/compile_cache.h"
#include "runtime/backend.h"

namespace tessera::xla {

// Programs compiled whole by XLA for a device with memory of its own: each rank is a process with
// one, and XLA joins them. State lives in buffers of the device, which programs are donated and
// give back. Written for GPUs and run, so far, on one device of XLA's CPU only.
class DeviceBackend final : public Backend {
 public:
  struct Options {
    std::filesystem::path plugin;
    std::filesystem::path cache;    // of compiled programs; empty: none
    std::optional<GpuProcess> gpu;  // without: one device of XLA's CPU
    KeyValues values;               // of a job of several processes
  };
  explicit DeviceBackend(Options options);

  std::unique_ptr<Executable> compile(const Graph& graph) override;
  std::unique_ptr<State> make_state() override;
  std::unique_ptr<Arenas> make_arenas(const ProgramMemory& memory) override;
  bool shows_values() const override { return false; }

  // "XLA, cuda, plug-in 0.116".
  const std::string& description() const { return description_; }

 private:
  friend class DeviceExecutable;
  int world_size_;
  KeyValues values_;
  Plugin plugin_;
  Client client_;
  CompileCache cache_;
  std::string description_;
};

}  // namespace tessera::xla
