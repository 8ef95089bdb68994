#include "backends/ref/ref_backend.h"

#include <array>
#include <cstring>

#include "backends/ref/interpreter.h"
#include "base/clock.h"
#include "base/float16.h"
#include "base/text.h"

namespace tessera::ref {
namespace {

using Bytes = std::vector<std::byte>;

template <class T>
std::vector<double> load_as(std::span<const std::byte> bytes) {
  std::vector<T> elements(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(elements.data(), bytes.data(), bytes.size());
  std::vector<double> values;
  for (T x : elements) {
    if constexpr (std::is_arithmetic_v<T>)
      values.push_back(static_cast<double>(x));
    else
      values.push_back(static_cast<double>(static_cast<float>(x)));
  }
  return values;
}

std::vector<double> load(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kF64: return load_as<double>(bytes);
    case DType::kF32: return load_as<float>(bytes);
    case DType::kBF16: return load_as<BF16>(bytes);
    case DType::kF16: return load_as<F16>(bytes);
    case DType::kI64: return load_as<int64_t>(bytes);
    case DType::kI32: return load_as<int32_t>(bytes);
    case DType::kBool: return load_as<uint8_t>(bytes);
  }
  throw InternalError("dtype");
}

template <class T>
Bytes store_as(const std::vector<double>& values) {
  Bytes bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    if constexpr (std::is_arithmetic_v<T>)
      element = static_cast<T>(values[i]);
    else
      element = T(static_cast<float>(values[i]));
    std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
  }
  return bytes;
}

Bytes store(const Tensor& tensor) {
  switch (tensor.type.dtype) {
    case DType::kF64: return store_as<double>(tensor.data);
    case DType::kF32: return store_as<float>(tensor.data);
    case DType::kBF16: return store_as<BF16>(tensor.data);
    case DType::kF16: return store_as<F16>(tensor.data);
    case DType::kI64: return store_as<int64_t>(tensor.data);
    case DType::kI32: return store_as<int32_t>(tensor.data);
    case DType::kBool: return store_as<uint8_t>(tensor.data);
  }
  throw InternalError("dtype");
}

class RefExecutable final : public Executable {
 public:
  explicit RefExecutable(Graph graph) : graph_(std::move(graph)) {}
  const Graph& graph() const override { return graph_; }
  ProgramMemory memory() const override { return {.exact = false}; }

  void bind(State& state, Arenas&) override {
    for (const auto& [slot, type] : slot_types(graph_)) state.declare(slot, type);
    state_ = &state;
  }

  Pending start(const Arguments& arguments, const NodeObserver* observer) override {
    TESSERA_CHECK(state_, "run before bind");
    Feeds feeds;
    for (const GraphInput& input : graph_.inputs()) {
      const TensorType& type = graph_.type(input.value);
      Bytes bytes(static_cast<size_t>(type.bytes()));
      if (input.kind == InputKind::kState) {
        state_->read_bytes(input.name, 0, bytes);
      } else {
        auto given = arguments.find(input.name);
        TESSERA_CHECK(given != arguments.end() && given->second,
                      cat("no argument '", input.name, "'"));
        if (!bytes.empty()) std::memcpy(bytes.data(), given->second, bytes.size());
      }
      feeds[input.name] = {load(type.dtype, bytes)};
    }
    Results results = ref::run(graph_, feeds, observer ? tell(*observer) : Observer());
    for (const auto& [slot, ranks] : results.updates) state_->write_bytes(slot, 0, store(ranks[0]));
    std::vector<Bytes>& kept = kept_[static_cast<size_t>(runs_ % kRunsKept)];
    kept.clear();
    for (const GraphOutput& output : graph_.outputs())
      kept.push_back(store(results.outputs.at(output.name)[0]));
    return {*this, runs_++};
  }

 private:
  // An observer of nodes, from one of their outputs.
  static Observer tell(const NodeObserver& observer) {
    return [&observer, outputs = std::vector<Bytes>(), begin = monotonic_seconds()](
               const Graph& graph, const Node& node, size_t output,
               const std::vector<Tensor>& ranks) mutable {
      outputs.push_back(store(ranks[0]));
      if (output + 1 < node.outputs.size()) return;
      std::vector<void*> addresses;
      for (Bytes& bytes : outputs) addresses.push_back(bytes.data());
      double now = monotonic_seconds();
      if (node.op->tier() != Tier::kInput) observer({graph, node, addresses, now - begin});
      begin = now;
      outputs.clear();
    };
  }

  void wait(int64_t run) override {
    TESSERA_CHECK(run < runs_ && run >= runs_ - kRunsKept, "results of a run that is long over");
  }
  void read_output(int64_t run, size_t output, std::span<std::byte> to) override {
    const Bytes& kept = kept_[static_cast<size_t>(run % kRunsKept)][output];
    std::memcpy(to.data(), kept.data(), to.size());
  }

  Graph graph_;
  State* state_ = nullptr;
  int64_t runs_ = 0;
  std::array<std::vector<Bytes>, kRunsKept> kept_;
};

class NoArenas final : public Arenas {
 public:
  int64_t bytes() const override { return 0; }
};

}  // namespace

std::unique_ptr<Executable> RefBackend::compile(const Graph& graph) {
  if (graph.mesh().world_size() > 1)
    throw UserError("the reference backend runs programs of one rank");
  return std::make_unique<RefExecutable>(graph);
}
std::unique_ptr<State> RefBackend::make_state() { return std::make_unique<HostState>(); }
std::unique_ptr<Arenas> RefBackend::make_arenas(const ProgramMemory&) {
  return std::make_unique<NoArenas>();
}

}  // namespace tessera::ref
