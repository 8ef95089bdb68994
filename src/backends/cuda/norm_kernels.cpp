#include "backends/cuda/composite_kernels.h"
#include "ops/composite/layer_norm.h"
#include "ops/composite/rms_norm.h"

namespace tessera::cuda {
namespace {

// A thread for eight elements of a row, whole warps, at most so many.
unsigned row_threads(int64_t width, int64_t most = kBlockThreads) {
  return static_cast<unsigned>(std::clamp<int64_t>((width + 255) / 256 * 32, 32, most));
}

// Threads of a block of the gradients' kernels for rows of which a thread has one vector, whose
// sums are in registers; the general ones take wider rows.
constexpr int64_t kNarrowThreads = 512;
bool narrow(int64_t width) { return width <= kNarrowThreads * kElementsAThread; }
unsigned backward_threads(int64_t width) {
  return row_threads(width, narrow(width) ? kNarrowThreads : kBlockThreads);
}
std::string backward_suffix(const PrepareContext& c, int64_t width) {
  const std::string_view dtype = name(c.inputs[0].dtype);
  if (!narrow(width)) return std::string(dtype);
  return cat(dtype, "_", backward_threads(width) <= kBlockThreads ? kBlockThreads : kNarrowThreads);
}

// How many blocks of so many threads share the rows of which a column's sum is formed: it decides
// the order of sums, so it follows from shape and dtype alone. `most` threads in all.
int64_t row_blocks(int64_t rows, unsigned threads, int64_t most) {
  constexpr int64_t kFewestRows = 16;
  return std::clamp<int64_t>((rows + kFewestRows - 1) / kFewestRows, 1, most / threads);
}
// Of the norms' gradients at most as many as an H100 runs at a time, by the registers that nvcc
// gives their kernels: more of them would leave it half empty behind the first.
int64_t backward_blocks(int64_t rows, int64_t width, DType dtype, bool centers) {
  constexpr int64_t kMultiprocessors = 132, kRegisters = 65536;
  const unsigned threads = backward_threads(width);
  const int64_t of_a_thread = !narrow(width)                    ? 48
                              : threads > kBlockThreads         ? (centers ? 104 : 64)
                              : centers && dtype == DType::kF32 ? 112
                                                                : 80;
  return row_blocks(
      rows, threads,
      kMultiprocessors * std::max<int64_t>(kRegisters / (of_a_thread * threads), 1) * threads);
}

// Columns whose sums fit into shared memory on every device from compute capability 8.0 on.
constexpr int64_t kMostSums = 24 * 1024;

// Bytes of shared memory for a sum of every column, whole vectors of them, where they are not in
// registers.
int sum_bytes(int64_t width) {
  if (narrow(width)) return 0;
  return static_cast<int>((width + kElementsAThread - 1) / kElementsAThread * kElementsAThread * 4);
}

void launch_sums(Device& device, const Kernel& kernel, void* partial, void* y0, void* y1,
                 int64_t blocks, int64_t width) {
  device.launch(kernel, {blocks_for(width, 8), y1 ? 2u : 1u}, {kBlockThreads}, 0, partial, y0, y1,
                blocks, width);
}

Prepared prepare_rms_norm(const PrepareContext& c, Device& device) {
  int64_t rows = rows_of(c.inputs[0]), width = c.inputs[0].shape.back();
  auto epsilon = static_cast<float>(static_cast<const RmsNorm&>(c.op).epsilon());
  Kernel kernel = find_kernel(device, "rms_norm", name(c.inputs[0].dtype));
  return Launch{launch_name(c), 0, [=, &device](const LaunchArguments& a) {
                  if (rows == 0) return;
                  device.launch(kernel, {static_cast<unsigned>(rows)}, {row_threads(width)}, 0,
                                a.inputs[0], a.inputs[1], a.outputs[0], a.outputs[1], width,
                                epsilon);
                }};
}

Prepared prepare_layer_norm(const PrepareContext& c, Device& device) {
  int64_t rows = rows_of(c.inputs[0]), width = c.inputs[0].shape.back();
  auto epsilon = static_cast<float>(static_cast<const LayerNorm&>(c.op).epsilon());
  Kernel kernel = find_kernel(device, "layer_norm", name(c.inputs[0].dtype));
  return Launch{
      launch_name(c), 0, [=, &device, bias = c.inputs.size() == 3](const LaunchArguments& a) {
        if (rows == 0) return;
        const void* b = bias ? a.inputs[2] : nullptr;
        device.launch(kernel, {static_cast<unsigned>(rows)}, {row_threads(width)}, 0, a.inputs[0],
                      a.inputs[1], b, a.outputs[0], a.outputs[1], a.outputs[2], width, epsilon);
      }};
}

Prepared prepare_rms_norm_backward(const PrepareContext& c, Device& device) {
  int64_t rows = rows_of(c.inputs[0]), width = c.inputs[0].shape.back(),
          blocks = backward_blocks(rows, width, c.inputs[0].dtype, false);
  if (width > kMostSums) return cat("rows of at most ", kMostSums, " elements");
  Kernel of_rows = find_kernel(device, "rms_norm_backward", backward_suffix(c, width)),
         sums = find_kernel(device, "sum_partials");
  return Launch{launch_name(c), blocks * width * 4,
                [=, &device, adds = c.inputs.size() == 5](const LaunchArguments& a) {
                  if (width == 0) return;
                  device.launch(of_rows, {static_cast<unsigned>(blocks)}, {backward_threads(width)},
                                sum_bytes(width), a.inputs[0], a.inputs[1], a.inputs[2],
                                a.inputs[3], adds ? a.inputs[4] : nullptr, a.outputs[0],
                                a.workspace, rows, width);
                  launch_sums(device, sums, a.workspace, a.outputs[1], nullptr, blocks, width);
                }};
}

Prepared prepare_layer_norm_backward(const PrepareContext& c, Device& device) {
  int64_t rows = rows_of(c.inputs[0]), width = c.inputs[0].shape.back(),
          blocks = backward_blocks(rows, width, c.inputs[0].dtype, true);
  if (2 * width > kMostSums) return cat("rows of at most ", kMostSums / 2, " elements");
  Kernel of_rows = find_kernel(device, "layer_norm_backward", backward_suffix(c, width)),
         sums = find_kernel(device, "sum_partials");
  return Launch{launch_name(c), 2 * blocks * width * 4,
                [=, &device, adds = c.inputs.size() == 6](const LaunchArguments& a) {
                  if (width == 0) return;
                  device.launch(of_rows, {static_cast<unsigned>(blocks)}, {backward_threads(width)},
                                2 * sum_bytes(width), a.inputs[0], a.inputs[1], a.inputs[2],
                                a.inputs[3], a.inputs[4], adds ? a.inputs[5] : nullptr,
                                a.outputs[0], a.workspace, rows, width);
                  launch_sums(device, sums, a.workspace, a.outputs[1], a.outputs[2], blocks, width);
                }};
}

Prepared prepare_add_bias_backward(const PrepareContext& c, Device& device) {
  int64_t rows = rows_of(c.inputs[0]), width = c.inputs[0].shape.back(),
          blocks = row_blocks(rows, row_threads(width), 131072);
  Kernel of_rows = find_kernel(device, "column_sum", name(c.inputs[0].dtype)),
         sums = find_kernel(device, "sum_partials");
  return Launch{
      launch_name(c), blocks * width * 4, [=, &device](const LaunchArguments& a) {
        if (width == 0) return;
        unsigned threads = row_threads(width);
        device.launch(
            of_rows, {static_cast<unsigned>(blocks), blocks_for(width, threads * kElementsAThread)},
            {threads}, 0, a.inputs[0], a.workspace, rows, width);
        launch_sums(device, sums, a.workspace, a.outputs[0], nullptr, blocks, width);
      }};
}

}  // namespace

void register_norms(KernelTable& table, Device& device) {
  auto add = [&](std::string_view op, auto prepare) {
    table.add(op, for_floats(0, [prepare, &device](const PrepareContext& c) {
                return prepare(c, device);
              }));
  };
  add("rms_norm", prepare_rms_norm);
  for (std::string_view op : {"rms_norm_backward", "rms_norm_backward_add"})
    add(op, prepare_rms_norm_backward);
  add("layer_norm", prepare_layer_norm);
  for (std::string_view op : {"layer_norm_backward", "layer_norm_backward_add"})
    add(op, prepare_layer_norm_backward);
  add("add_bias_backward", prepare_add_bias_backward);
}

}  // namespace tessera::cuda
