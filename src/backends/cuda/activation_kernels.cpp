#include "backends/cuda/composite_kernels.h"
#include "base/random.h"
#include "ops/composite/dropout.h"
#include "ops/composite/gelu.h"
#include "ops/composite/rope.h"
#include "ops/composite/scale.h"

namespace tessera::cuda {
namespace {

// A kernel on the addresses of all operands, then of all results, then the number of elements.
Prepared prepare_elements(const PrepareContext& c, Device& device, const std::string& kernel_name) {
  Kernel kernel = find_kernel(device, kernel_name);
  size_t inputs = c.inputs.size();
  return Launch{launch_name(c), 0,
                [=, &device, n = c.inputs[0].elements()](const LaunchArguments& a) {
                  if (inputs == 1)
                    launch_vectors(device, kernel, n, a.inputs[0], a.outputs[0], n);
                  else if (inputs == 2)
                    launch_vectors(device, kernel, n, a.inputs[0], a.inputs[1], a.outputs[0], n);
                  else
                    launch_vectors(device, kernel, n, a.inputs[0], a.inputs[1], a.inputs[2],
                                   a.outputs[0], a.outputs[1], n);
                }};
}

Prepared prepare_swiglu(const PrepareContext& c, Device& device) {
  return prepare_elements(c, device, cat(c.op.name(), "_", name(c.inputs[0].dtype)));
}

std::string_view kind_name(GeluKind kind) { return kind == GeluKind::kExact ? "exact" : "tanh"; }

Prepared prepare_gelu(const PrepareContext& c, Device& device) {
  GeluKind kind = c.inputs.size() == 1 ? static_cast<const Gelu&>(c.op).kind()
                                       : static_cast<const GeluBackward&>(c.op).kind();
  return prepare_elements(c, device,
                          cat(c.op.name(), "_", kind_name(kind), "_", name(c.inputs[0].dtype)));
}

Prepared prepare_add_bias(const PrepareContext& c, Device& device) {
  Kernel kernel = find_kernel(device, "add_bias", name(c.inputs[0].dtype));
  int64_t n = c.inputs[0].elements(), width = c.inputs[0].shape.back();
  return Launch{launch_name(c), 0, [=, &device](const LaunchArguments& a) {
                  launch_vectors(device, kernel, n, a.inputs[0], a.inputs[1], a.outputs[0], n,
                                 width);
                }};
}

Prepared prepare_scale(const PrepareContext& c, Device& device) {
  Kernel kernel = find_kernel(device, "scale", name(c.inputs[0].dtype));
  auto factor = static_cast<float>(static_cast<const Scale&>(c.op).factor());
  return Launch{launch_name(c), 0,
                [=, &device, n = c.inputs[0].elements()](const LaunchArguments& a) {
                  launch_vectors(device, kernel, n, a.inputs[0], a.outputs[0], n, factor);
                }};
}

Prepared prepare_sum_n(const PrepareContext& c, Device& device) {
  if (c.inputs.size() > kMaxSummands) return cat("at most ", kMaxSummands, " operands");
  Kernel kernel = find_kernel(device, "sum_n", name(c.inputs[0].dtype));
  return Launch{launch_name(c), 0,
                [=, &device, n = c.inputs[0].elements()](const LaunchArguments& a) {
                  Summands summands{};
                  std::ranges::copy(a.inputs, summands.x);
                  summands.count = static_cast<int32_t>(a.inputs.size());
                  launch_vectors(device, kernel, n, summands, a.outputs[0], n);
                }};
}

Prepared prepare_dropout(const PrepareContext& c, Device& device) {
  const auto& op = static_cast<const Dropout&>(c.op);
  const Shape& shape = c.inputs[0].shape;
  Kernel kernel = find_kernel(device, "dropout", name(c.inputs[0].dtype));
  RandomPlaces places = random_places(shape, op.part());
  int64_t lines = c.inputs[0].elements() == 0 ? 0 : shape[0] * places.lines;
  // A line may begin and end anywhere in blocks of random numbers, 16 threads each.
  int64_t groups = ((places.width - 1) / kRandomBlock + 2) * 16;
  if (op.part().whole()) groups = (places.width + kRandomBlock - 1) / kRandomBlock * 16;
  return Launch{launch_name(c), 0,
                [=, &device, stream = stream_of(op.stream()), whole = op.part().whole(),
                 threshold = static_cast<uint32_t>(dropout_threshold(op.p())),
                 scale = static_cast<float>(dropout_scale(op.p()))](const LaunchArguments& a) {
                  const void* begin = whole ? nullptr : a.inputs[2];
                  launch_threads(device, kernel, lines * groups, a.inputs[0], a.inputs[1], begin,
                                 a.outputs[0], lines, groups, stream, places, threshold, scale);
                }};
}

Prepared prepare_rope(const PrepareContext& c, Device& device, const RotaryAngles& rotary,
                      float sign, bool documents, bool continued) {
  const Shape& s = c.inputs[0].shape;
  auto half = static_cast<int64_t>(rotary.frequencies.size());
  if (half > kMaxFrequencies) return cat("at most ", kMaxFrequencies, " frequencies");
  Frequencies frequencies{};
  std::ranges::transform(rotary.frequencies, frequencies.values,
                         [](double f) { return static_cast<float>(f); });
  Kernel kernel = find_kernel(device, "rope", name(c.inputs[0].dtype));
  int64_t tokens = s[0] * s[1], length = s[1], heads = s[2], width = s[3];
  return Launch{launch_name(c), 0,
                [=, &device, scale = static_cast<float>(rotary.scale)](const LaunchArguments& a) {
                  const void *starts = documents ? a.inputs[1] : nullptr,
                             *at = continued ? a.inputs[1] : nullptr;
                  const bool vectors = width % kElementsAThread == 0 &&
                                       half % kElementsAThread == 0 &&
                                       in_vectors({a.inputs[0], a.outputs[0]});
                  const int64_t threads = vectors ? (heads + kTurnedHeads - 1) / kTurnedHeads *
                                                        (width - half) / kElementsAThread
                                                  : width - half;
                  launch_threads(device, kernel, heads == 0 ? 0 : tokens * threads, a.inputs[0],
                                 a.outputs[0], starts, at, tokens, length, heads, width, half,
                                 scale, sign, int32_t{vectors}, frequencies);
                }};
}

}  // namespace

void register_activations(KernelTable& table, Device& device) {
  auto add = [&](std::string_view op, auto prepare) {
    table.add(op, for_floats(0, [prepare, &device](const PrepareContext& c) {
                return prepare(c, device);
              }));
  };
  add("swiglu", prepare_swiglu);
  add("swiglu_backward", prepare_swiglu);
  add("gelu", prepare_gelu);
  add("gelu_backward", prepare_gelu);
  add("add_bias", prepare_add_bias);
  add("scale", prepare_scale);
  add("sum_n", prepare_sum_n);
  add("dropout", prepare_dropout);
  add("rope", [](const PrepareContext& c, Device& d) {
    const auto& op = static_cast<const Rope&>(c.op);
    return prepare_rope(c, d, op.rotary(), op.inverse() ? -1.0f : 1.0f, op.documents(), false);
  });
  add("rope_at", [](const PrepareContext& c, Device& d) {
    return prepare_rope(c, d, static_cast<const RopeAt&>(c.op).rotary(), 1, false, true);
  });
}

}  // namespace tessera::cuda
