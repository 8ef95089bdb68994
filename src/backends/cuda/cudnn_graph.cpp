#include "backends/cuda/cudnn_graph.h"

#include <algorithm>
#include <array>

#include "backends/cuda/kernel_launch.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kTensorAlignment = 16;

bool is_deterministic(const Cudnn& library, const CudnnDescriptor& config) {
  CudnnDescriptor engine(library, kCudnnEngine);
  cudnnDescriptor into = engine.get();
  int64_t count = 0;
  library.call(library.get_attribute, config.get(), kCudnnConfigEngine, kCudnnTypeDescriptor,
               int64_t{1}, &count, static_cast<void*>(&into));
  std::array<int, 32> notes{};
  library.call(library.get_attribute, engine.get(), kCudnnEngineNotes, kCudnnTypeNumericalNote,
               std::ssize(notes), &count, static_cast<void*>(notes.data()));
  const auto end = notes.begin() + count;
  return std::find(notes.begin(), end, kCudnnNoteNondeterministic) == end;
}

}  // namespace

CudnnGraph::TensorRef CudnnGraph::add(Shape dims, const Shape& strides, int type,
                                      std::optional<int64_t> id, bool by_value) {
  Tensor& made = tensors_.emplace_back(Tensor{std::move(dims), {library_, kCudnnTensor}});
  CudnnDescriptor& d = made.descriptor;
  d.set(kCudnnTensorDataType, kCudnnTypeDataType, type);
  d.set(kCudnnTensorDims, kCudnnTypeInt64, std::span<const int64_t>(made.dims));
  d.set(kCudnnTensorStrides, kCudnnTypeInt64, std::span<const int64_t>(strides));
  d.set(kCudnnTensorId, kCudnnTypeInt64, id ? *id : next_id_++);
  d.set(kCudnnTensorAlignment, kCudnnTypeInt64, kTensorAlignment);
  d.set(kCudnnTensorIsVirtual, kCudnnTypeBoolean, !id);
  d.set(kCudnnTensorIsByValue, kCudnnTypeBoolean, by_value);
  d.finalize();
  return &made;
}

CudnnGraph::TensorRef CudnnGraph::memory(int64_t id, int type, const Shape& dims,
                                         const Shape& strides) {
  return add(dims, strides, type, id, false);
}
CudnnGraph::TensorRef CudnnGraph::scalar(int64_t id) {
  return add({1, 1, 1, 1}, {1, 1, 1, 1}, kCudnnFloat, id, true);
}
CudnnGraph::TensorRef CudnnGraph::between(int type, const Shape& dims, const Shape& strides) {
  return add(dims, strides.empty() ? row_major_strides(dims) : strides, type, {}, false);
}

void CudnnGraph::matmul(TensorRef a, TensorRef b, TensorRef c) {
  CudnnDescriptor& product = detail(kCudnnMatmul);
  product.set(kCudnnMatmulPrecision, kCudnnTypeDataType, kCudnnFloat);
  product.finalize();
  CudnnDescriptor& o = operation(kCudnnOperationMatmul);
  o.set(kCudnnMatmulDescriptor, product);
  o.set(kCudnnMatmulA, a->descriptor);
  o.set(kCudnnMatmulB, b->descriptor);
  o.set(kCudnnMatmulC, c->descriptor);
  o.finalize();
}

CudnnDescriptor& CudnnGraph::begin_pointwise(int mode, int precision, TensorRef x, TensorRef y,
                                             std::optional<int64_t> axis) {
  CudnnDescriptor& what = detail(kCudnnPointwise);
  what.set(kCudnnPointwiseMode, kCudnnTypePointwiseMode, mode);
  what.set(kCudnnPointwisePrecision, kCudnnTypeDataType, precision);
  if (axis) what.set(kCudnnPointwiseAxis, kCudnnTypeInt64, *axis);
  what.finalize();
  CudnnDescriptor& o = operation(kCudnnOperationPointwise);
  o.set(kCudnnPointwiseDescriptor, what);
  o.set(kCudnnPointwiseX, x->descriptor);
  o.set(kCudnnPointwiseY, y->descriptor);
  return o;
}

void CudnnGraph::pointwise(int mode, TensorRef x, TensorRef b, TensorRef y, int precision) {
  CudnnDescriptor& o = begin_pointwise(mode, precision, x, y);
  o.set(kCudnnPointwiseB, b->descriptor);
  o.finalize();
}
void CudnnGraph::pointwise(int mode, TensorRef x, TensorRef y) {
  begin_pointwise(mode, kCudnnFloat, x, y).finalize();
}
void CudnnGraph::select(TensorRef x, TensorRef b, TensorRef t, TensorRef y) {
  CudnnDescriptor& o = begin_pointwise(kCudnnSelect, kCudnnFloat, x, y);
  o.set(kCudnnPointwiseB, b->descriptor);
  o.set(kCudnnPointwiseT, t->descriptor);
  o.finalize();
}
void CudnnGraph::index(TensorRef x, int64_t dim, TensorRef y) {
  begin_pointwise(kCudnnIndex, kCudnnFloat, x, y, dim).finalize();
}

void CudnnGraph::reduce(int op, TensorRef x, TensorRef y) {
  CudnnDescriptor& what = detail(kCudnnReduction);
  what.set(kCudnnReductionOperator, kCudnnTypeReduction, op);
  what.set(kCudnnReductionPrecision, kCudnnTypeDataType, kCudnnFloat);
  what.finalize();
  CudnnDescriptor& o = operation(kCudnnOperationReduction);
  o.set(kCudnnReductionDescriptor, what);
  o.set(kCudnnReductionX, x->descriptor);
  o.set(kCudnnReductionY, y->descriptor);
  o.finalize();
}

void CudnnGraph::reshape(TensorRef x, TensorRef y) {
  CudnnDescriptor& o = operation(kCudnnOperationReshape);
  o.set(kCudnnReshapeX, x->descriptor);
  o.set(kCudnnReshapeY, y->descriptor);
  o.finalize();
}

std::vector<cudnnDescriptor> CudnnGraph::operations() const {
  std::vector<cudnnDescriptor> all;
  for (const CudnnDescriptor& o : operations_) all.push_back(o.get());
  return all;
}

CudnnPlan::CudnnPlan(CudnnGraph graph, const CudnnTarget& target,
                     const std::optional<CudnnEngineChoice>& choice)
    : graph_(std::move(graph)) {
  const Cudnn& library = graph_.library();
  whole_.emplace(library, kCudnnOperationGraph);
  const std::vector<cudnnDescriptor> operations = graph_.operations();
  whole_->set(kCudnnGraphOperations, kCudnnTypeDescriptor,
              std::span<const cudnnDescriptor>(operations));
  if (target.handle) whole_->set(kCudnnGraphHandle, kCudnnTypeHandle, target.handle);
  whole_->finalize();

  if (choice) {
    CudnnDescriptor& engine = kept_.emplace_back(library, kCudnnEngine);
    engine.set(kCudnnEngineGraph, *whole_);
    engine.set(kCudnnEngineIndex, kCudnnTypeInt64, choice->engine);
    if (target.described) engine.set(kCudnnEngineDevice, *target.described);
    engine.finalize();
    std::vector<cudnnDescriptor> knobs;
    for (const auto& [type, value] : choice->knobs) {
      CudnnDescriptor& knob = kept_.emplace_back(library, kCudnnKnobChoice);
      knob.set(kCudnnKnobType, kCudnnTypeKnob, type);
      knob.set(kCudnnKnobValue, kCudnnTypeInt64, value);
      knob.finalize();
      knobs.push_back(knob.get());
    }
    CudnnDescriptor& config = kept_.emplace_back(library, kCudnnEngineConfig);
    config.set(kCudnnConfigEngine, engine);
    config.set(kCudnnConfigKnobs, kCudnnTypeDescriptor, std::span<const cudnnDescriptor>(knobs));
    config.finalize();
    if (!finish(config, target)) throw DeviceError("cuDNN: this engine is not deterministic");
    return;
  }

  CudnnDescriptor& heuristics = kept_.emplace_back(library, kCudnnHeuristics);
  heuristics.set(kCudnnHeuristicsGraph, *whole_);
  heuristics.set(kCudnnHeuristicsMode, kCudnnTypeHeuristicsMode, kCudnnHeuristicsA);
  if (target.described) heuristics.set(kCudnnHeuristicsDevice, *target.described);
  heuristics.finalize();
  int64_t count = 0;
  library.call(library.get_attribute, heuristics.get(), kCudnnHeuristicsResults,
               kCudnnTypeDescriptor, int64_t{0}, &count, static_cast<void*>(nullptr));
  std::vector<cudnnDescriptor> into;
  const size_t first = kept_.size();
  for (int64_t i = 0; i < count; ++i)
    into.push_back(kept_.emplace_back(library, kCudnnEngineConfig).get());
  library.call(library.get_attribute, heuristics.get(), kCudnnHeuristicsResults,
               kCudnnTypeDescriptor, count, &count, static_cast<void*>(into.data()));
  std::string reasons;
  for (int64_t i = 0; i < count; ++i) {
    try {
      if (finish(kept_[first + static_cast<size_t>(i)], target)) return;
      reasons += "; a nondeterministic engine";
    } catch (const DeviceError& error) {
      reasons += cat("; ", error.what());
    }
  }
  throw DeviceError(cat("cuDNN ", library.version(), " has no engine for it", reasons));
}

bool CudnnPlan::finish(const CudnnDescriptor& config, const CudnnTarget& target) {
  const Cudnn& library = graph_.library();
  if (!is_deterministic(library, config)) return false;
  if (target.described) {
    workspace_bytes_ = config.number(kCudnnConfigWorkspace);
    return true;
  }
  CudnnDescriptor plan(library, kCudnnPlan);
  plan.set(kCudnnPlanConfig, config);
  plan.set(kCudnnPlanHandle, kCudnnTypeHandle, target.handle);
  plan.finalize();
  workspace_bytes_ = plan.number(kCudnnPlanWorkspace);
  plan_.emplace(std::move(plan));
  return true;
}

CudnnVariantPack::CudnnVariantPack(const Cudnn& library, const std::vector<int64_t>& ids,
                                   const std::vector<const void*>& addresses, void* workspace)
    : pack_(library, kCudnnVariantPack) {
  pack_.set(kCudnnPackIds, kCudnnTypeInt64, std::span<const int64_t>(ids));
  pack_.set(kCudnnPackPointers, kCudnnTypePointer, std::span<const void* const>(addresses));
  pack_.set(kCudnnPackWorkspace, kCudnnTypePointer, workspace);
  pack_.finalize();
}

}  // namespace tessera::cuda
