#pragma once
#include "backends/xla/pjrt_api.h"

// The part of PJRT's C interface by which programs are compiled for devices that are not there.
namespace tessera::xla::pjrt {

struct Topology;

struct TopologyCreate {
  Head head;
  const char* name;
  size_t name_size;
  const NamedValue* options;
  size_t num_options;
  Topology* topology;  // out
};
struct TopologyDestroy {
  Head head;
  Topology* topology;
};
struct Compile {
  Head head;
  const Topology* topology;
  const Program* program;
  const char* options;  // serialized CompileOptionsProto
  size_t options_size;
  Client* client;
  Executable* executable;  // out
};
struct ExecutableOptimizedProgram {
  Head head;
  Executable* executable;
  Program* program;  // out; without code it gives the size
};

}  // namespace tessera::xla::pjrt
