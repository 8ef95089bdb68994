#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "backends/xla/client.h"
#include "backends/xla/hlo_module.h"
#include "backends/xla/pjrt_topology.h"

namespace tessera::xla {

// A GPU that programs are compiled for, without one: stream_executor's GpuTargetConfigProto as
// text. UserError for names that are none of "h100" (SXM, 80 GB) and "a100" (SXM, 80 GB).
std::string_view target_config(const std::string& gpu);

// Devices that are only described.
class Topology {
 public:
  // PluginError says what the plug-in does not take.
  Topology(const Plugin& plugin, std::string_view target_config, int hosts, int devices_per_host);
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  const Plugin& plugin() const { return plugin_; }
  const pjrt::Topology* get() const { return topology_; }

 private:
  const Plugin& plugin_;
  pjrt::Topology* topology_ = nullptr;
};

// A program that was compiled for a topology: it can be looked at and kept, not run.
class TopologyProgram {
 public:
  // StableHLO of so many replicas, scheduled for so much memory: compile_options().
  TopologyProgram(const Topology& topology, const std::string& text, int replicas,
                  int64_t memory = 0);
  ~TopologyProgram();
  TopologyProgram(const TopologyProgram&) = delete;
  TopologyProgram& operator=(const TopologyProgram&) = delete;

  CompiledProgram::Memory memory() const;  // of one device
  HloGathers gathers() const;
  // What Client::load() takes, on such a device.
  std::string serialized() const;

 private:
  const Plugin& plugin_;
  pjrt::Executable* executable_ = nullptr;
};

}  // namespace tessera::xla
