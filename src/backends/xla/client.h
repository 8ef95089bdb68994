#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/xla/key_values.h"
#include "backends/xla/plugin.h"
#include "ir/tensor_type.h"

namespace tessera::xla {

class Client;

// A tensor on a device.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const Client& client, pjrt::Buffer* buffer) : client_(&client), buffer_(buffer) {}
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  pjrt::Buffer* get() const { return buffer_; }
  // Waits for it.
  void read(std::span<std::byte> to) const;
  // Of its elements, where that is host memory.
  const std::byte* address() const;

 private:
  const Client* client_ = nullptr;
  pjrt::Buffer* buffer_ = nullptr;
};

// A program that was compiled, for all devices of the client.
class CompiledProgram {
 public:
  CompiledProgram(const Client& client, pjrt::LoadedExecutable* loaded);
  ~CompiledProgram();
  CompiledProgram(const CompiledProgram&) = delete;
  CompiledProgram& operator=(const CompiledProgram&) = delete;

  // Runs on the first `arguments.size()` devices together, and waits for all. Arguments of a
  // device in the program's order; those that the program donates are gone afterwards. The caller
  // has checked types: XLA takes other types of the same size in silence.
  using Buffers = std::vector<DeviceBuffer>;
  std::vector<Buffers> run(std::span<const std::vector<const DeviceBuffer*>> arguments) const;
  // What Client::load() takes.
  std::string serialized() const;
  // By the compiler's account, in bytes of one device.
  struct Memory {
    int64_t arguments = 0, results = 0, aliased = 0, temporaries = 0, code = 0;
  };
  Memory memory() const;
  static Memory memory_of(const Plugin& plugin, pjrt::Executable* executable);

 private:
  const Client& client_;
  pjrt::LoadedExecutable* loaded_;
  pjrt::Executable* executable_;
  size_t num_results_ = 0;
};

// A process of a job whose GPUs belong to one process each.
struct GpuProcess {
  int rank = 0, world_size = 1;
  int device = 0;  // of this host's, by number
};

// The devices of this process.
class Client {
 public:
  // On a CPU, `devices` of them.
  Client(const Plugin& plugin, int devices);
  // One GPU. Where there are other processes they meet over `values`, which outlives the client.
  Client(const Plugin& plugin, const GpuProcess& process, const KeyValues& values);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Plugin& plugin() const { return plugin_; }
  int num_devices() const { return static_cast<int>(devices_.size()); }
  // "cpu", and the version of XLA.
  std::string platform() const;
  std::string platform_version() const;

  // StableHLO of so many replicas. PluginError says what XLA does not take.
  std::unique_ptr<CompiledProgram> compile(const std::string& text, int replicas) const;
  std::unique_ptr<CompiledProgram> load(const std::string& serialized) const;

  // A copy of the elements.
  DeviceBuffer copy(const TensorType& type, const void* data, int device) const;
  // The memory itself, which must outlive the buffer: programs that it is donated to write into it.
  DeviceBuffer in_place(const TensorType& type, void* data, int device) const;

 private:
  friend class CompiledProgram;
  DeviceBuffer make(const TensorType& type, const void* data, int device,
                    pjrt::HostMemory kind) const;
  void create(std::span<const pjrt::NamedValue> options, const KeyValues* values);
  std::string text_of(pjrt::Function function, const std::string& doing) const;

  const Plugin& plugin_;
  pjrt::Client* client_ = nullptr;
  std::vector<pjrt::Device*> devices_;
};

// A program for XLA's compiler; the text must live as long.
pjrt::Program program_of(const std::string& text);

// Of a compiled program, serialized: what Client::load() takes.
std::string serialized(const Plugin& plugin, pjrt::Executable* executable);

// CompileOptionsProto, serialized: so many replicas, one partition, no excess precision. `memory`:
// bytes that arguments and temporaries may take by the scheduler's count; 0: what the device has.
// Without options XLA ends the process.
std::string compile_options(int replicas, int64_t memory = 0);

}  // namespace tessera::xla
