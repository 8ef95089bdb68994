#pragma once
#include <cstddef>
#include <cstdint>

// The part of PJRT's C interface that is used here, by its documentation and its stable layout:
// argument structs begin with their size, and grow at their end; functions have numbers in one
// table, and are added at its end. tests/backends/xla holds this against the interface's own
// header, where a plug-in brings that.
namespace tessera::xla::pjrt {

struct Error;
struct Event;
struct Client;
struct Device;
struct Memory;
struct Buffer;
struct Executable;        // what was compiled
struct LoadedExecutable;  // the same, ready to run on the client's devices
struct SerializedExecutable;

// What every argument struct begins with. Plug-ins take a struct that is larger than they know.
struct Head {
  size_t struct_size = 0;
  void* extensions = nullptr;
};

// Place in the table of functions.
enum class Function : size_t {
  kErrorDestroy = 0,
  kErrorMessage = 1,
  kErrorGetCode = 2,
  kPluginInitialize = 3,
  kEventDestroy = 5,
  kEventAwait = 8,
  kClientCreate = 10,
  kClientDestroy = 11,
  kClientPlatformName = 12,
  kClientPlatformVersion = 14,
  kClientAddressableDevices = 16,
  kClientCompile = 20,
  kClientBufferFromHostBuffer = 22,
  kExecutableDestroy = 40,
  kExecutableNumOutputs = 44,
  kExecutableOptimizedProgram = 48,
  kExecutableSerialize = 49,
  kLoadedExecutableDestroy = 50,
  kLoadedExecutableGetExecutable = 51,
  kLoadedExecutableExecute = 55,
  kExecutableDeserializeAndLoad = 56,
  kBufferDestroy = 58,
  kBufferToHostBuffer = 70,
  kBufferUnsafePointer = 73,
  kTopologyCreate = 82,
  kTopologyDestroy = 83,
  kCompile = 89,
  kExecutableGetCompiledMemoryStats = 96,
};

struct Api {
  Head head;
  Head version_head;
  int major_version, minor_version;
  using Entry = Error* (*)(void* arguments);
  Entry functions[1];  // as many as head.struct_size says
};

enum class ErrorCode : int {
  kNotFound = 5,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13
};
enum class ElementType : int {
  kPred = 1,
  kI32 = 4,
  kI64 = 5,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 13,
};
// Of memory that a buffer is made from.
enum class HostMemory : int {
  kCopiedDuringCall = 0,
  // The buffer is this memory, and what is donated is overwritten there.
  kMutableZeroCopy = 3,
};

struct NamedValue {
  Head head;
  const char* name = nullptr;
  size_t name_size = 0;
  enum class Type : int { kString = 0, kI64 = 1, kI64List = 2 } type = Type::kI64;
  union {
    const char* string_value;
    int64_t int64_value = 0;
    const int64_t* int64_list;
  };
  size_t value_size = 1;  // of a string its length, of a list its number
};

struct ErrorDestroy {
  Head head;
  Error* error;
};
struct ErrorMessage {
  Head head;
  const Error* error;
  const char* message;  // out
  size_t message_size;  // out
};
struct ErrorGetCode {
  Head head;
  const Error* error;
  ErrorCode code;  // out
};
struct PluginInitialize {
  Head head;
};
struct EventDestroy {
  Head head;
  Event* event;
};
struct EventAwait {
  Head head;
  Event* event;
};
// What a plug-in calls to meet other processes; from any thread.
using MakeError = Error* (*)(ErrorCode code, const char* message, size_t message_size);
struct KeyValueGet {  // waits
  Head head;
  const char* key;
  size_t key_size;
  int timeout_ms;
  MakeError* make_error;
  void* user_argument;
  char* value;                  // out
  size_t value_size;            // out
  void (*delete_value)(char*);  // out
};
struct KeyValueTryGet {  // kNotFound if it is not there
  Head head;
  const char* key;
  size_t key_size;
  MakeError* make_error;
  void* user_argument;
  char* value;                  // out
  size_t value_size;            // out
  void (*delete_value)(char*);  // out
};
struct KeyValuePut {
  Head head;
  const char* key;
  size_t key_size;
  const char* value;
  size_t value_size;
  MakeError* make_error;
  void* user_argument;
};
struct ClientCreate {
  Head head;
  const NamedValue* options;
  size_t num_options;
  Error* (*kv_get)(KeyValueGet*);
  void* kv_get_argument;
  Error* (*kv_put)(KeyValuePut*);
  void* kv_put_argument;
  Client* client;  // out
  Error* (*kv_try_get)(KeyValueTryGet*);
  void* kv_try_get_argument;
};
struct ClientDestroy {
  Head head;
  Client* client;
};
struct ClientText {  // platform's name, its version
  Head head;
  Client* client;
  const char* text;  // out
  size_t text_size;  // out
};
struct ClientAddressableDevices {
  Head head;
  Client* client;
  Device* const* devices;  // out
  size_t num_devices;      // out
};
struct Program {
  Head head;
  const char* code = nullptr;
  size_t code_size = 0;
  const char* format = "mlir";
  size_t format_size = 4;
};
struct ClientCompile {
  Head head;
  Client* client;
  const Program* program;
  const char* options;  // serialized CompileOptionsProto
  size_t options_size;
  LoadedExecutable* executable;  // out
};
struct ClientBufferFromHostBuffer {
  Head head;
  Client* client;
  const void* data;
  ElementType type;
  const int64_t* dims;
  size_t num_dims;
  const int64_t* byte_strides;
  size_t num_byte_strides;
  HostMemory host_memory;
  Device* device;
  Memory* memory;
  void* device_layout;
  Event* done_with_host_buffer;  // out
  Buffer* buffer;                // out
};
struct ExecutableDestroy {
  Head head;
  Executable* executable;
};
struct ExecutableNumOutputs {
  Head head;
  Executable* executable;
  size_t num_outputs;  // out
};
struct ExecutableSerialize {
  Head head;
  const Executable* executable;
  const char* bytes;                       // out
  size_t bytes_size;                       // out
  SerializedExecutable* serialized;        // out: holds the bytes
  void (*destroy)(SerializedExecutable*);  // out
};
struct LoadedExecutableDestroy {
  Head head;
  LoadedExecutable* executable;
};
struct LoadedExecutableGetExecutable {
  Head head;
  LoadedExecutable* loaded;
  Executable* executable;  // out
};
struct ExecuteOptions {
  Head head;
  void* send_callbacks;
  void* receive_callbacks;
  size_t num_sends;
  size_t num_receives;
  int launch_id;
  const int64_t* not_donated;  // indices of arguments
  size_t num_not_donated;
};
struct LoadedExecutableExecute {
  Head head;
  LoadedExecutable* executable;
  ExecuteOptions* options;
  Buffer* const* const* arguments;  // by device
  size_t num_devices;
  size_t num_arguments;
  Buffer** const* results;  // by device; out
  Event** complete;         // by device; out
  Device* device;
};
struct ExecutableDeserializeAndLoad {
  Head head;
  Client* client;
  const char* bytes;
  size_t bytes_size;
  LoadedExecutable* executable;  // out
};
struct BufferDestroy {
  Head head;
  Buffer* buffer;
};
struct BufferToHostBuffer {
  Head head;
  Buffer* buffer;
  void* host_layout;
  void* to;      // nullptr: asks for the size
  size_t bytes;  // in, or out
  Event* event;  // out
};
struct BufferUnsafePointer {
  Head head;
  Buffer* buffer;
  uintptr_t address;  // out
};
struct ExecutableGetCompiledMemoryStats {
  Head head;
  Executable* executable;
  // Out, in bytes: on the device, then in host memory.
  int64_t code, arguments, results, aliased, temporaries;
  int64_t host_code, host_arguments, host_results, host_aliased, host_temporaries;
};

}  // namespace tessera::xla::pjrt
