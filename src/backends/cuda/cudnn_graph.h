#pragma once
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "backends/cuda/cudnn.h"
#include "base/shape.h"

namespace tessera::cuda {

// Operations of cuDNN that are planned as one. Tensors have four dims; ones in memory have an id of
// the caller's, by which they are given when it runs.
class CudnnGraph {
 public:
  struct Tensor {
    Shape dims;
    CudnnDescriptor descriptor;
  };
  using TensorRef = const Tensor*;  // lives as long as the graph

  explicit CudnnGraph(const Cudnn& library) : library_(library) {}

  // In memory, aligned to 16 bytes; `strides` in elements.
  TensorRef memory(int64_t id, int type, const Shape& dims, const Shape& strides);
  // One number that the host gives.
  TensorRef scalar(int64_t id);
  // Between operations, never in memory as far as the caller is concerned; row-major unless
  // `strides` are given.
  TensorRef between(int type, const Shape& dims, const Shape& strides = {});

  // c = a b, of the last two dims; heads of b serve several of a. Summed in f32.
  void matmul(TensorRef a, TensorRef b, TensorRef c);
  // y = x op b, dims of b being those of x or 1.
  void pointwise(int mode, TensorRef x, TensorRef b, TensorRef y, int precision = kCudnnFloat);
  void pointwise(int mode, TensorRef x, TensorRef y);
  // y = t ? x : b.
  void select(TensorRef x, TensorRef b, TensorRef t, TensorRef y);
  // y: the place of an element along a dim, as i32.
  void index(TensorRef x, int64_t dim, TensorRef y);
  // Over the dims in which y is smaller than x.
  void reduce(int op, TensorRef x, TensorRef y);
  // The same elements by other strides, converted to the type of y.
  void reshape(TensorRef x, TensorRef y);

  const Cudnn& library() const { return library_; }
  std::vector<cudnnDescriptor> operations() const;

 private:
  TensorRef add(Shape dims, const Shape& strides, int type, std::optional<int64_t> id,
                bool by_value);
  CudnnDescriptor& operation(int type) { return operations_.emplace_back(library_, type); }
  CudnnDescriptor& detail(int type) { return details_.emplace_back(library_, type); }
  CudnnDescriptor& begin_pointwise(int mode, int precision, TensorRef x, TensorRef y,
                                   std::optional<int64_t> axis = {});

  const Cudnn& library_;
  std::deque<Tensor> tensors_;
  std::deque<CudnnDescriptor> operations_, details_;
  int64_t next_id_ = 1000;  // of tensors between operations, which need one too
};

// For which device a plan is made: the one of a handle, or one that is described as cuDNN writes
// devices down.
struct CudnnTarget {
  cudnnHandle handle = nullptr;
  const CudnnDescriptor* described = nullptr;
};

// An engine and its knobs, where it is not left to the library.
struct CudnnEngineChoice {
  int64_t engine = 0;
  std::vector<std::pair<int, int64_t>> knobs;  // type and value
};

// A graph made ready to run on a device: the first of the library's proposals that it supports, and
// which it does not call nondeterministic. For a device that is described nothing is compiled: the
// plan says what workspace it would take, and cannot run.
class CudnnPlan {
 public:
  // DeviceError with the library's words if there is none.
  CudnnPlan(CudnnGraph graph, const CudnnTarget& target,
            const std::optional<CudnnEngineChoice>& choice = {});
  int64_t workspace_bytes() const { return workspace_bytes_; }
  cudnnDescriptor get() const { return plan_->get(); }
  const Cudnn& library() const { return graph_.library(); }

 private:
  bool finish(const CudnnDescriptor& config, const CudnnTarget& target);

  CudnnGraph graph_;
  std::optional<CudnnDescriptor> whole_;
  std::deque<CudnnDescriptor> kept_;  // what the plan refers to
  std::optional<CudnnDescriptor> plan_;
  int64_t workspace_bytes_ = 0;
};

// Where the tensors of a plan and its workspace are. Made anew when addresses change.
class CudnnVariantPack {
 public:
  CudnnVariantPack(const Cudnn& library, const std::vector<int64_t>& ids,
                   const std::vector<const void*>& addresses, void* workspace);
  cudnnDescriptor get() const { return pack_.get(); }

 private:
  CudnnDescriptor pack_;
};

}  // namespace tessera::cuda
