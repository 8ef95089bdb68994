#include "backends/xla/xla_backend.h"

#include <cstring>

#include "backends/xla/xla_executable.h"
#include "base/text.h"

namespace tessera::xla {
namespace {

// XLA allocates by itself.
class XlaArenas final : public Arenas {
 public:
  explicit XlaArenas(int64_t bytes) : bytes_(bytes) {}
  int64_t bytes() const override { return bytes_; }

 private:
  int64_t bytes_;
};

}  // namespace

XlaBackend::XlaBackend(Options options, Control* control)
    : control_(control && control->world_size() > 1 ? control : nullptr), memory_(control_) {
  lead("XLA's devices", [&] {
    plugin_ = std::make_unique<Plugin>(options.plugin.string());
    client_ = std::make_unique<Client>(*plugin_, world_size());
    if (client_->num_devices() < world_size())
      throw UserError(cat("XLA has ", client_->num_devices(), " devices of platform ",
                          client_->platform(), ", for ", world_size(), " ranks"));
    cache_ = std::make_unique<CompileCache>(*client_, options.cache);
  });
  const std::string own = client_ ? cat(client_->platform(), ", plug-in ", plugin_->version()) : "";
  description_ = "XLA, " + meet("XLA's devices are there", own)[0];
}

XlaBackend::~XlaBackend() = default;

std::unique_ptr<Executable> XlaBackend::compile(const Graph& graph) {
  return std::make_unique<XlaExecutable>(*this, graph);
}

std::unique_ptr<State> XlaBackend::make_state() { return std::make_unique<XlaState>(memory_); }

std::unique_ptr<Arenas> XlaBackend::make_arenas(const ProgramMemory& memory) {
  return std::make_unique<XlaArenas>(memory.arena);
}

std::vector<std::string> XlaBackend::meet(const std::string& tag, const std::string& text) const {
  return control_ ? control_->exchange(tag, text) : std::vector{text};
}

void XlaBackend::lead(const std::string& tag, const std::function<void()>& work) const {
  if (!control_) return work();
  while_others_wait(*control_, rank() == 0, tag, work);
}

std::byte* XlaState::data(const std::string& slot) const {
  auto found = slots_.find(slot);
  TESSERA_CHECK(found != slots_.end(), cat("no state slot '", slot, "'"));
  return found->second;
}

void XlaState::allocate(const std::string& slot, int64_t bytes) {
  slots_.emplace(slot, memory_.allocate(bytes));
}

void XlaState::copy_out(const std::string& slot, int64_t offset, std::span<std::byte> to) const {
  std::memcpy(to.data(), data(slot) + offset, to.size());
}

void XlaState::copy_in(const std::string& slot, int64_t offset, std::span<const std::byte> from) {
  std::memcpy(data(slot) + offset, from.data(), from.size());
}

}  // namespace tessera::xla
