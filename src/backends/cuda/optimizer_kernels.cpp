#include "backends/cuda/composite_kernels.h"
#include "ops/composite/adamw.h"
#include "ops/composite/lion.h"
#include "ops/composite/sgd.h"

namespace tessera::cuda {
namespace {

// Blocks of an update: as many as the device runs at a time, each of which works out the step's
// factors once. Elements do not depend on each other, so neither do results on the device.
unsigned update_blocks(Device& device, int64_t n) {
  constexpr int64_t kBlocksEach = 8;
  return std::min(blocks_for(n, kBlockThreads * kElementsAThread),
                  static_cast<unsigned>(device.multiprocessors() * kBlocksEach));
}

// `run(blocks, n, segments, arguments)` of an update that has a flat buffer to work on.
template <class Run>
Prepared prepare_update(const PrepareContext& c, Device& device, Run run) {
  if (c.inputs[0].dtype != DType::kF32) return std::string("takes f32");
  int64_t n = c.inputs[0].elements(), segments = c.inputs.back().elements();
  return Launch{launch_name(c), 0, [=, &device](const LaunchArguments& a) {
                  if (n > 0) run(update_blocks(device, n), n, segments, a);
                }};
}

}  // namespace

void register_optimizers(KernelTable& table, Device& device) {
  table.add("adamw", [&device](const PrepareContext& c) {
    const auto& op = static_cast<const AdamW&>(c.op);
    Kernel kernel = find_kernel(device, "adamw");
    return prepare_update(
        c, device,
        [kernel, &device, beta1 = op.beta1(), beta2 = op.beta2(), epsilon = op.epsilon(),
         rounds = op.rounds()](unsigned blocks, int64_t n, int64_t segments,
                               const LaunchArguments& a) {
          void* rounded = rounds ? a.outputs[3] : nullptr;
          device.launch(kernel, {blocks}, {kBlockThreads}, 0, a.inputs[0], a.inputs[1], a.inputs[2],
                        a.inputs[3], a.inputs[4], a.inputs[5], a.inputs[6], a.inputs[7],
                        a.inputs[8], a.inputs[9], a.outputs[0], a.outputs[1], a.outputs[2], rounded,
                        n, segments, beta1, beta2, epsilon);
        });
  });
  table.add("sgd", [&device](const PrepareContext& c) {
    Kernel kernel = find_kernel(device, "sgd");
    return prepare_update(
        c, device,
        [kernel, &device, momentum = static_cast<const Sgd&>(c.op).momentum()](
            unsigned blocks, int64_t n, int64_t segments, const LaunchArguments& a) {
          device.launch(kernel, {blocks}, {kBlockThreads}, 0, a.inputs[0], a.inputs[1], a.inputs[2],
                        a.inputs[3], a.inputs[4], a.inputs[5], a.inputs[6], a.inputs[7],
                        a.outputs[0], a.outputs[1], n, segments, momentum);
        });
  });
  table.add("lion", [&device](const PrepareContext& c) {
    const auto& op = static_cast<const Lion&>(c.op);
    Kernel kernel = find_kernel(device, "lion");
    return prepare_update(
        c, device,
        [kernel, &device, beta1 = op.beta1(), beta2 = op.beta2()](
            unsigned blocks, int64_t n, int64_t segments, const LaunchArguments& a) {
          device.launch(kernel, {blocks}, {kBlockThreads}, 0, a.inputs[0], a.inputs[1], a.inputs[2],
                        a.inputs[3], a.inputs[4], a.inputs[5], a.inputs[6], a.inputs[7],
                        a.outputs[0], a.outputs[1], n, segments, beta1, beta2);
        });
  });
}

}  // namespace tessera::cuda
