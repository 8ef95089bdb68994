#include "tests/plan/tag_kernels.h"

#include <cstring>
#include <memory>
#include <utility>

#include "base/hash.h"

namespace tessera {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  a = (a ^ b) * 0x9e3779b97f4a7c15u;
  return a ^ (a >> 29);
}

struct Span {
  int64_t elements = 0, size = 0;  // size of one element
  bool paired = false;             // part of an in-place pair
};

uint64_t load(const void* data, const Span& span, int64_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const std::byte*>(data) + i * span.size,
              static_cast<size_t>(span.size));
  return bits;
}

struct TagKernel {
  uint64_t op = 0;
  std::vector<Span> inputs, outputs;
  int64_t workspace_bytes = 0;

  void operator()(const LaunchArguments& arguments) const {
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!outputs[k].paired)
        std::memset(arguments.outputs[k], 0xEE,
                    static_cast<size_t>(outputs[k].elements * outputs[k].size));
    }
    soil(arguments);
    // Paired operands element by element, since the result may lie in them; then the others.
    for (bool paired : {true, false}) {
      int64_t longest = 0;
      for (const Span& out : outputs) longest = std::max(longest, out.elements);
      for (int64_t i = 0; i < longest; ++i) step(arguments, i, paired);
    }
    soil(arguments);
  }

  void soil(const LaunchArguments& arguments) const {
    if (workspace_bytes > 0)
      std::memset(arguments.workspace, 0xDD, static_cast<size_t>(workspace_bytes));
  }

  void step(const LaunchArguments& arguments, int64_t i, bool paired) const {
    uint64_t tag = mix(op, static_cast<uint64_t>(i));
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (inputs[k].paired != paired || inputs[k].elements == 0) continue;
      tag = mix(tag, load(arguments.inputs[k], inputs[k], i % inputs[k].elements));
    }
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (i >= outputs[k].elements) continue;
      auto* at = static_cast<std::byte*>(arguments.outputs[k]) + i * outputs[k].size;
      uint64_t own = mix(tag, k);
      if (!paired) own = mix(own, load(arguments.outputs[k], outputs[k], i));  // of the first round
      std::memcpy(at, &own, static_cast<size_t>(outputs[k].size));
    }
  }
};

// A tag kernel between its begin and its end.
struct Exchanging {
  TagKernel kernel;
  ExchangeTime time;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* workspace = nullptr;
  bool runs = false;

  LaunchArguments arguments() const { return {inputs, outputs, workspace}; }
  void begin(const LaunchArguments& given) {
    inputs.assign(given.inputs.begin(), given.inputs.end());
    outputs.assign(given.outputs.begin(), given.outputs.end());
    workspace = given.workspace;
    runs = true;
    if (time == ExchangeTime::kBegin) kernel(arguments());
    if (workspace) std::memset(workspace, kMark, static_cast<size_t>(kernel.workspace_bytes));
  }
  void end() {
    if (!std::exchange(runs, false)) return;
    bool kept = true;
    for (int64_t i = 0; i < (workspace ? kernel.workspace_bytes : 0); ++i)
      kept = kept && static_cast<const unsigned char*>(workspace)[i] == kMark;
    if (time == ExchangeTime::kEnd) kernel(arguments());
    if (!kept) std::memset(outputs[0], 0xCC, static_cast<size_t>(kernel.outputs[0].size));
  }
  static constexpr unsigned char kMark = 0xBB;
};

TagKernel tag_kernel(const PrepareContext& context) {
  TagKernel kernel;
  std::string key = context.op.key();
  kernel.op = hash_bytes(key.data(), key.size());
  for (const TensorType& t : context.inputs)
    kernel.inputs.push_back({t.elements(), size_of(t.dtype), false});
  for (const TensorType& t : context.outputs)
    kernel.outputs.push_back({t.elements(), size_of(t.dtype), false});
  for (InPlacePair pair : context.op.in_place_pairs()) {
    kernel.inputs[static_cast<size_t>(pair.input)].paired = true;
    kernel.outputs[static_cast<size_t>(pair.output)].paired = true;
  }
  if (context.op.name() == "sum_and_difference") kernel.workspace_bytes = 1000;
  if (context.op.name() == "sum_n") kernel.workspace_bytes = 40;
  if (context.op.name() == "exchange") kernel.workspace_bytes = 72;
  return kernel;
}

Prepared prepare_tag(const PrepareContext& context) {
  TagKernel kernel = tag_kernel(context);
  int64_t workspace = kernel.workspace_bytes;
  return Launch{"tag", workspace, std::move(kernel)};
}

Prepared prepare_exchange(const PrepareContext& context, ExchangeTime time) {
  auto exchanging = std::make_shared<Exchanging>(Exchanging{tag_kernel(context), time, {}, {}});
  return Launch{"tag", exchanging->kernel.workspace_bytes,
                [exchanging](const LaunchArguments& arguments) { exchanging->begin(arguments); },
                [exchanging] { exchanging->end(); }};
}

}  // namespace

std::vector<TensorType> SumAndDifference::infer(const InferContext& context) const {
  require(context.inputs[0] == context.inputs[1], *this, "C1", "operands must have one type");
  return {context.inputs[0], context.inputs[0]};
}

KernelTable tag_kernels(ExchangeTime exchanges) {
  KernelTable table;
  for (std::string_view op : {"add", "mul", "neg", "slice", "convert", "transpose", "sum_n",
                              "sum_and_difference", "offload", "fetch"}) {
    table.add(op, prepare_tag);
  }
  table.add("exchange", [exchanges](const PrepareContext& context) {
    return prepare_exchange(context, exchanges);
  });
  return table;
}

}  // namespace tessera
