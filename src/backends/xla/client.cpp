#include "backends/xla/client.h"

#include <utility>

#include "base/text.h"

namespace tessera::xla {

using pjrt::Function;

namespace {

pjrt::ElementType element_type(DType dtype) {
  switch (dtype) {
    case DType::kF64: return pjrt::ElementType::kF64;
    case DType::kF32: return pjrt::ElementType::kF32;
    case DType::kBF16: return pjrt::ElementType::kBF16;
    case DType::kF16: return pjrt::ElementType::kF16;
    case DType::kI64: return pjrt::ElementType::kI64;
    case DType::kI32: return pjrt::ElementType::kI32;
    case DType::kBool: return pjrt::ElementType::kPred;
  }
  throw InternalError("no such dtype");
}

// Protocol buffers: a field of bytes, and a number.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value > 127; value >>= 7) bytes += static_cast<char>((value & 127) | 128);
  return bytes + static_cast<char>(value);
}
std::string number_field(int field, uint64_t value) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(value);
}
std::string bytes_field(int field, const std::string& bytes) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(bytes.size()) + bytes;
}

pjrt::NamedValue named(std::string_view name, int64_t value) {
  pjrt::NamedValue option;
  option.head.struct_size = sizeof(option);
  option.name = name.data();
  option.name_size = name.size();
  option.int64_value = value;
  return option;
}

}  // namespace

// CompileOptionsProto: 3, ExecutableBuildOptionsProto: 4, replicas; 5, partitions; 15, the device's
// memory. 7, a map of options by name, OptionOverrideProto: 2, a bool. With excess precision what
// is computed again would differ from what it was.
std::string compile_options(int replicas, int64_t memory) {
  std::string build = number_field(4, static_cast<uint64_t>(replicas)) + number_field(5, 1);
  if (memory > 0) build += number_field(15, static_cast<uint64_t>(memory));
  const std::string no_excess =
      bytes_field(1, "xla_allow_excess_precision") + bytes_field(2, number_field(2, 0));
  return bytes_field(3, build) + bytes_field(7, no_excess);
}

pjrt::Program program_of(const std::string& text) {
  pjrt::Program program;
  program.head.struct_size = sizeof(program);
  program.code = text.data();
  program.code_size = text.size();
  return program;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : client_(other.client_), buffer_(std::exchange(other.buffer_, nullptr)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(client_, other.client_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (!buffer_) return;
  Call<pjrt::BufferDestroy> destroy;
  destroy->buffer = buffer_;
  client_->plugin().release(Function::kBufferDestroy, destroy);
}

void DeviceBuffer::read(std::span<std::byte> to) const {
  Call<pjrt::BufferToHostBuffer> read;
  read->buffer = buffer_;
  read->to = to.data();
  read->bytes = to.size();
  client_->plugin().call(Function::kBufferToHostBuffer, read, "reading a tensor");
  client_->plugin().await(read->event, "reading a tensor");
}

const std::byte* DeviceBuffer::address() const {
  Call<pjrt::BufferUnsafePointer> find;
  find->buffer = buffer_;
  client_->plugin().call(Function::kBufferUnsafePointer, find, "finding a tensor");
  return reinterpret_cast<const std::byte*>(find->address);
}

CompiledProgram::CompiledProgram(const Client& client, pjrt::LoadedExecutable* loaded)
    : client_(client), loaded_(loaded) {
  Call<pjrt::LoadedExecutableGetExecutable> get;
  get->loaded = loaded;
  client_.plugin().call(Function::kLoadedExecutableGetExecutable, get, "looking into a program");
  executable_ = get->executable;
  Call<pjrt::ExecutableNumOutputs> count;
  count->executable = executable_;
  client_.plugin().call(Function::kExecutableNumOutputs, count, "looking into a program");
  num_results_ = count->num_outputs;
}

CompiledProgram::~CompiledProgram() {
  Call<pjrt::ExecutableDestroy> destroy;
  destroy->executable = executable_;
  client_.plugin().release(Function::kExecutableDestroy, destroy);
  Call<pjrt::LoadedExecutableDestroy> unload;
  unload->executable = loaded_;
  client_.plugin().release(Function::kLoadedExecutableDestroy, unload);
}

std::vector<CompiledProgram::Buffers> CompiledProgram::run(
    std::span<const std::vector<const DeviceBuffer*>> arguments) const {
  const size_t devices = arguments.size();
  std::vector<std::vector<pjrt::Buffer*>> given(devices), made(devices);
  std::vector<pjrt::Buffer* const*> given_lists;
  std::vector<pjrt::Buffer**> made_lists;
  for (size_t d = 0; d < devices; ++d) {
    for (const DeviceBuffer* buffer : arguments[d]) given[d].push_back(buffer->get());
    made[d].resize(num_results_);
    given_lists.push_back(given[d].data());
    made_lists.push_back(made[d].data());
  }
  std::vector<pjrt::Event*> complete(devices);
  Call<pjrt::ExecuteOptions> options;
  Call<pjrt::LoadedExecutableExecute> execute;
  execute->executable = loaded_;
  execute->options = options.get();
  execute->arguments = given_lists.data();
  execute->num_devices = devices;
  execute->num_arguments = arguments[0].size();
  execute->results = made_lists.data();
  execute->complete = complete.data();
  client_.plugin().call(Function::kLoadedExecutableExecute, execute, "running a program");
  std::vector<Buffers> results(devices);
  for (size_t d = 0; d < devices; ++d)
    for (pjrt::Buffer* buffer : made[d]) results[d].emplace_back(client_, buffer);
  for (pjrt::Event* event : complete) client_.plugin().await(event, "running a program");
  return results;
}

std::string serialized(const Plugin& plugin, pjrt::Executable* executable) {
  Call<pjrt::ExecutableSerialize> serialize;
  serialize->executable = executable;
  plugin.call(Function::kExecutableSerialize, serialize, "serializing a program");
  std::string bytes(serialize->bytes, serialize->bytes_size);
  serialize->destroy(serialize->serialized);
  return bytes;
}

std::string CompiledProgram::serialized() const {
  return xla::serialized(client_.plugin(), executable_);
}

CompiledProgram::Memory CompiledProgram::memory() const {
  return memory_of(client_.plugin(), executable_);
}

CompiledProgram::Memory CompiledProgram::memory_of(const Plugin& plugin,
                                                   pjrt::Executable* executable) {
  Call<pjrt::ExecutableGetCompiledMemoryStats> ask;
  ask->executable = executable;
  plugin.call(Function::kExecutableGetCompiledMemoryStats, ask, "asking for its memory");
  return {ask->arguments, ask->results, ask->aliased, ask->temporaries, ask->code};
}

Client::Client(const Plugin& plugin, int devices) : plugin_(plugin) {
  const pjrt::NamedValue count[] = {named("cpu_device_count", devices)};
  create(count, nullptr);
}

Client::Client(const Plugin& plugin, const GpuProcess& process, const KeyValues& values)
    : plugin_(plugin) {
  const int64_t visible = process.device;
  pjrt::NamedValue devices = named("visible_devices", 0);
  devices.type = pjrt::NamedValue::Type::kI64List;
  devices.int64_list = &visible;
  const pjrt::NamedValue options[] = {named("node_id", process.rank),
                                      named("num_nodes", process.world_size), devices};
  create(options, process.world_size > 1 ? &values : nullptr);
}

void Client::create(std::span<const pjrt::NamedValue> options, const KeyValues* values) {
  Call<pjrt::ClientCreate> create;
  create->options = options.data();
  create->num_options = options.size();
  if (values) give(*values, *create.get());
  plugin_.call(Function::kClientCreate, create, "finding XLA's devices");
  client_ = create->client;
  Call<pjrt::ClientAddressableDevices> list;
  list->client = client_;
  plugin_.call(Function::kClientAddressableDevices, list, "finding XLA's devices");
  devices_.assign(list->devices, list->devices + list->num_devices);
}

Client::~Client() {
  Call<pjrt::ClientDestroy> destroy;
  destroy->client = client_;
  plugin_.release(Function::kClientDestroy, destroy);
}

std::string Client::text_of(Function function, const std::string& doing) const {
  Call<pjrt::ClientText> ask;
  ask->client = client_;
  plugin_.call(function, ask, doing);
  return {ask->text, ask->text_size};
}
std::string Client::platform() const {
  return text_of(Function::kClientPlatformName, "asking for the platform");
}
std::string Client::platform_version() const {
  return text_of(Function::kClientPlatformVersion, "asking for the platform");
}

std::unique_ptr<CompiledProgram> Client::compile(const std::string& text, int replicas) const {
  const std::string options = compile_options(replicas);
  const pjrt::Program program = program_of(text);
  Call<pjrt::ClientCompile> compile;
  compile->client = client_;
  compile->program = &program;
  compile->options = options.data();
  compile->options_size = options.size();
  plugin_.call(Function::kClientCompile, compile, "compiling");
  return std::make_unique<CompiledProgram>(*this, compile->executable);
}

std::unique_ptr<CompiledProgram> Client::load(const std::string& serialized) const {
  Call<pjrt::ExecutableDeserializeAndLoad> load;
  load->client = client_;
  load->bytes = serialized.data();
  load->bytes_size = serialized.size();
  plugin_.call(Function::kExecutableDeserializeAndLoad, load, "loading a program");
  return std::make_unique<CompiledProgram>(*this, load->executable);
}

DeviceBuffer Client::make(const TensorType& type, const void* data, int device,
                          pjrt::HostMemory kind) const {
  Call<pjrt::ClientBufferFromHostBuffer> make;
  make->client = client_;
  make->data = data;
  make->type = element_type(type.dtype);
  make->dims = type.shape.data();
  make->num_dims = type.shape.size();
  make->host_memory = kind;
  make->device = devices_.at(static_cast<size_t>(device));
  plugin_.call(Function::kClientBufferFromHostBuffer, make, "making a tensor");
  DeviceBuffer buffer(*this, make->buffer);
  if (kind == pjrt::HostMemory::kCopiedDuringCall) {
    plugin_.await(make->done_with_host_buffer, "making a tensor");
  } else if (make->done_with_host_buffer) {
    // It comes when the buffer ends.
    Call<pjrt::EventDestroy> destroy;
    destroy->event = make->done_with_host_buffer;
    plugin_.release(Function::kEventDestroy, destroy);
  }
  return buffer;
}
DeviceBuffer Client::copy(const TensorType& type, const void* data, int device) const {
  return make(type, data, device, pjrt::HostMemory::kCopiedDuringCall);
}
DeviceBuffer Client::in_place(const TensorType& type, void* data, int device) const {
  return make(type, data, device, pjrt::HostMemory::kMutableZeroCopy);
}

}  // namespace tessera::xla
