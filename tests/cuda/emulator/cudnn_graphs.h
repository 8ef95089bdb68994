#pragma once
#include <map>
#include <string>
#include <vector>

#include "cudnn_objects.h"

// What the double of cuDNN knows of graphs of operations: whether they are ones, what they take and
// what they compute.
namespace tessera::emulated_gpu {

struct CudnnTensorFacts {
  int64_t id = 0;
  int type = 0;
  std::vector<int64_t> dims, strides;
  int64_t alignment = 1;
  bool is_virtual = false, by_value = false;
  explicit CudnnTensorFacts(const CudnnObject& descriptor);
  int64_t elements() const;
  int64_t extent_bytes() const;  // from the first to the last element
};
int64_t cudnn_element_bytes(int type);

// One operation: its inputs by role, and what it gives.
struct CudnnStep {
  int kind = 0, mode = 0;
  int64_t axis = 0;
  std::vector<CudnnTensorFacts> inputs;  // a, b; or x, b, t as far as there are any
  CudnnTensorFacts output;
};
struct CudnnProgram {
  std::vector<CudnnStep> steps;
  std::map<int64_t, CudnnTensorFacts> tensors;  // all, by id
  bool is_gradient = false;                     // reads statistics instead of giving them
  bool sums_in_memory = false;                  // dq is summed in memory of the caller
  uint64_t workspace() const;
};

// Of an operation when it is finalized: an empty text, or what is wrong with it.
std::string cudnn_check_operation(const CudnnObject& operation);
// Of operations that are finalized. `wrong`: what makes them no graph.
CudnnProgram cudnn_program(const CudnnObject& graph, std::string& wrong);

// Computes in the host's memory: tensors by id where they lie. Sums are in ascending order in f32,
// and what a tensor holds is rounded to its type.
void cudnn_run(const CudnnProgram& program, const std::map<int64_t, std::byte*>& memory);

}  // namespace tessera::emulated_gpu
