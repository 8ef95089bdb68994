#pragma once
#include <chrono>
#include <filesystem>
#include <string>

#include "backends/xla/topology.h"

namespace tessera::xla {

// GPUs that programs are compiled for, on a machine without one.
struct TargetMachines {
  std::string gpu;  // of target_config()
  int hosts = 1, gpus_per_host = 1;
  int gpus() const { return hosts * gpus_per_host; }
};

// What compiling a program gave. Nothing was executed.
struct AheadOfTime {
  std::string interface;           // of the plug-in: "0.116"
  CompiledProgram::Memory memory;  // of one GPU
  HloGathers gathers;
  double seconds = 0, processor_seconds = 0;  // of compiling alone; the second of all threads
  std::string executable;                     // serialized, where it was asked for
};

struct AheadOfTimeOptions {
  bool keep_executable = false;
  int64_t memory = 0;  // that XLA's scheduler takes for the device's: compile_options()
  std::chrono::seconds timeout{3600};
};

// Compiles StableHLO of as many replicas as there are GPUs, in a child process: what ends XLA ends
// that one. UserError where NVIDIA's files are missing, or the plug-in is none; DeviceError, both
// with the program's name, where XLA refuses it or ended.
AheadOfTime compile_ahead(const std::filesystem::path& plugin, const TargetMachines& machines,
                          const std::string& name, const std::string& text,
                          const AheadOfTimeOptions& options = {});

}  // namespace tessera::xla
