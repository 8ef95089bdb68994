// Graphs of operations of cuDNN, checked and computed on the host.
#include "cudnn_graphs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "host_elements.h"

namespace tessera::emulated_gpu {

int64_t cudnn_element_bytes(int type) {
  switch (type) {
    case kCudnnFloat:
    case kCudnnInt32: return 4;
    case kCudnnBFloat16: return 2;
    case kCudnnBoolean: return 1;
    default: return 0;
  }
}

CudnnTensorFacts::CudnnTensorFacts(const CudnnObject& d)
    : id(d.one<int64_t>(kCudnnTensorId)),
      type(d.one<int>(kCudnnTensorDataType)),
      dims(d.all<int64_t>(kCudnnTensorDims)),
      strides(d.all<int64_t>(kCudnnTensorStrides)),
      alignment(d.one<int64_t>(kCudnnTensorAlignment, 1)),
      is_virtual(d.one<uint8_t>(kCudnnTensorIsVirtual) != 0),
      by_value(d.one<uint8_t>(kCudnnTensorIsByValue) != 0) {}

int64_t CudnnTensorFacts::elements() const {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}
int64_t CudnnTensorFacts::extent_bytes() const {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return (last + 1) * cudnn_element_bytes(type);
}

namespace {

CudnnTensorFacts tensor_of(const CudnnObject& operation, int name) {
  return CudnnTensorFacts(cudnn_object(operation.one<cudnnDescriptor>(name)));
}

CudnnStep step_of(const CudnnObject& o) {
  CudnnStep step{o.type, 0, 0, {}, CudnnTensorFacts(CudnnObject{})};
  auto inputs = [&](std::initializer_list<int> names) {
    for (int name : names)
      if (o.has(name)) step.inputs.push_back(tensor_of(o, name));
  };
  if (o.type == kCudnnOperationMatmul) {
    inputs({kCudnnMatmulA, kCudnnMatmulB});
    step.output = tensor_of(o, kCudnnMatmulC);
  } else if (o.type == kCudnnOperationReshape) {
    inputs({kCudnnReshapeX});
    step.output = tensor_of(o, kCudnnReshapeY);
  } else if (o.type == kCudnnOperationReduction) {
    inputs({kCudnnReductionX});
    step.output = tensor_of(o, kCudnnReductionY);
    step.mode = cudnn_object(o.one<cudnnDescriptor>(kCudnnReductionDescriptor))
                    .one<int>(kCudnnReductionOperator);
  } else {
    inputs({kCudnnPointwiseX, kCudnnPointwiseB, kCudnnPointwiseT});
    step.output = tensor_of(o, kCudnnPointwiseY);
    const CudnnObject& what = cudnn_object(o.one<cudnnDescriptor>(kCudnnPointwiseDescriptor));
    step.mode = what.one<int>(kCudnnPointwiseMode);
    step.axis = what.one<int64_t>(kCudnnPointwiseAxis, -1);
  }
  return step;
}

// Operands of a pointwise operation; 0: it is not known here.
size_t operands_of(int mode) {
  switch (mode) {
    case kCudnnAdd:
    case kCudnnMul:
    case kCudnnDiv:
    case kCudnnSub:
    case kCudnnGreater:
    case kCudnnGreaterEqual: return 2;
    case kCudnnExp:
    case kCudnnLog:
    case kCudnnIdentity:
    case kCudnnIndex: return 1;
    case kCudnnSelect: return 3;
    default: return 0;
  }
}

std::string pointwise_fault(const CudnnStep& s) {
  const size_t operands = operands_of(s.mode);
  if (operands == 0) return "a pointwise operation that is not known here";
  if (s.inputs.size() != operands) return "a pointwise operation with another number of operands";
  for (const CudnnTensorFacts& input : s.inputs) {
    if (input.dims.size() != s.output.dims.size()) return "operands differ in their number of dims";
    for (size_t i = 0; i < input.dims.size(); ++i)
      if (input.dims[i] != s.output.dims[i] && input.dims[i] != 1)
        return "operands of a pointwise operation differ in their dims";
  }
  const bool compares = s.mode == kCudnnGreater || s.mode == kCudnnGreaterEqual;
  if (compares != (s.output.type == kCudnnBoolean)) return "only comparisons give booleans";
  if (s.mode == kCudnnSelect && s.inputs[2].type != kCudnnBoolean)
    return "a selection is not by booleans";
  if (s.mode == kCudnnIndex && (s.axis < 0 || s.axis >= std::ssize(s.output.dims)))
    return "the axis of an index is no dim";
  return "";
}

std::string matmul_fault(const CudnnStep& s) {
  const auto &a = s.inputs[0].dims, &b = s.inputs[1].dims, &c = s.output.dims;
  const size_t n = a.size();
  if (n < 3 || b.size() != n || c.size() != n) return "a product has other dims than three or more";
  if (a[n - 1] != b[n - 2] || a[n - 2] != c[n - 2] || b[n - 1] != c[n - 1])
    return "the dims are not those of a product";
  for (size_t i = 0; i + 2 < n; ++i)
    if (a[i] != c[i] || b[i] > a[i] || a[i] % b[i] != 0)
      return "the batches of a product do not fit each other";
  return "";
}

// y is x with its dims in another order, at the same places of memory: order[d] of y is d of x.
std::vector<size_t> order_of(const CudnnTensorFacts& x, const CudnnTensorFacts& y) {
  std::vector<size_t> order;
  std::set<size_t> taken;
  for (size_t d = 0; d < y.dims.size(); ++d) {
    for (size_t from = 0; from < x.dims.size(); ++from) {
      if (taken.contains(from) || x.dims[from] != y.dims[d] || x.strides[from] != y.strides[d])
        continue;
      taken.insert(from);
      order.push_back(from);
      break;
    }
  }
  return order;
}

}  // namespace

std::string cudnn_check_operation(const CudnnObject& operation) {
  const CudnnStep s = step_of(operation);
  if (s.kind == kCudnnOperationMatmul) return matmul_fault(s);
  if (s.kind == kCudnnOperationPointwise) return pointwise_fault(s);
  const CudnnTensorFacts &x = s.inputs[0], &y = s.output;
  if (x.dims.size() != y.dims.size()) return "operands differ in their number of dims";
  if (s.kind == kCudnnOperationReshape)
    return order_of(x, y).size() == x.dims.size()
               ? ""
               : "a reshape that is no other order of dims is not known here";
  if (s.mode != kCudnnReduceAdd && s.mode != kCudnnReduceMax)
    return "a reduction that is not known here";
  for (size_t i = 0; i < x.dims.size(); ++i)
    if (x.dims[i] % y.dims[i] != 0) return "the dims of a reduction do not fit each other";
  return "";
}

CudnnProgram cudnn_program(const CudnnObject& graph, std::string& wrong) {
  CudnnProgram program;
  std::set<int64_t> given;
  auto take = [&](const CudnnTensorFacts& t) {
    auto [known, added] = program.tensors.emplace(t.id, t);
    const CudnnTensorFacts& other = known->second;
    if (!added && (other.type != t.type || other.dims != t.dims || other.strides != t.strides ||
                   other.is_virtual != t.is_virtual || other.by_value != t.by_value))
      wrong = "two tensors of a graph have the same id";
  };
  for (cudnnDescriptor d : graph.all<cudnnDescriptor>(kCudnnGraphOperations)) {
    CudnnStep step = step_of(cudnn_object(d));
    for (const CudnnTensorFacts& input : step.inputs) {
      take(input);
      if (input.is_virtual && !given.contains(input.id))
        wrong = "an operation reads a virtual tensor that no operation before it gives";
    }
    take(step.output);
    if (step.output.by_value) wrong = "an operation gives a tensor that is by value";
    if (!given.insert(step.output.id).second) wrong = "two operations give the same tensor";
    program.steps.push_back(std::move(step));
  }
  // The statistics of a gradient are rows in memory that it reads.
  for (const auto& [id, t] : program.tensors) {
    const bool in_memory = !t.is_virtual && !t.by_value;
    if (in_memory && t.dims.back() == 1 && !given.contains(id)) program.is_gradient = true;
    if (in_memory && t.dims.back() > 1 && t.type == kCudnnFloat) program.sums_in_memory = true;
  }
  return program;
}

uint64_t CudnnProgram::workspace() const {
  if (!is_gradient) return 256;
  uint64_t bytes = 256;
  bool has_scores = sums_in_memory;
  for (const CudnnStep& s : steps) {
    const auto& dims = s.output.dims;
    const bool half = s.output.type == kCudnnBFloat16;
    // What is summed over the heads of a group lies in memory.
    if (s.kind == kCudnnOperationMatmul && half && s.output.is_virtual)
      bytes += static_cast<uint64_t>(s.output.elements()) * 2;
    // And, where dq is not summed by the blocks themselves, the gradient of the scores.
    if (s.kind == kCudnnOperationReshape && half && !has_scores) {
      bytes += static_cast<uint64_t>(dims[0] * dims[1] * ((dims[3] + 63) / 64 * 64) *
                                     ((dims[2] + 127) / 128 * 128)) *
               2;
      has_scores = true;
    }
  }
  return bytes;
}

namespace {

using Values = std::vector<float>;

// Calls with the place of every element: counted densely, and in strides of `t`.
template <class Call>
void for_elements(const CudnnTensorFacts& t, Call call) {
  std::vector<int64_t> at(t.dims.size(), 0);
  const int64_t count = t.elements();
  int64_t place = 0;
  for (int64_t n = 0; n < count; ++n) {
    call(n, place, at);
    for (size_t d = t.dims.size(); d-- > 0;) {
      place += t.strides[d];
      if (++at[d] < t.dims[d]) break;
      place -= t.dims[d] * t.strides[d];
      at[d] = 0;
    }
  }
}

float rounded(int type, float v) { return type == kCudnnBFloat16 ? from_bf16(to_bf16(v)) : v; }

Values load(const CudnnTensorFacts& t, const std::byte* memory) {
  Values values(static_cast<size_t>(t.elements()));
  for_elements(t, [&](int64_t n, int64_t place, const auto&) {
    const std::byte* at = memory + place * cudnn_element_bytes(t.type);
    if (t.type == kCudnnBFloat16) {
      uint16_t bits = 0;
      std::memcpy(&bits, at, 2);
      values[static_cast<size_t>(n)] = from_bf16(bits);
    } else {
      std::memcpy(&values[static_cast<size_t>(n)], at, 4);
    }
  });
  return values;
}
void store(const CudnnTensorFacts& t, const Values& values, std::byte* memory) {
  for_elements(t, [&](int64_t n, int64_t place, const auto&) {
    std::byte* at = memory + place * cudnn_element_bytes(t.type);
    const float v = values[static_cast<size_t>(n)];
    if (t.type == kCudnnBFloat16) {
      const uint16_t bits = to_bf16(v);
      std::memcpy(at, &bits, 2);
    } else {
      std::memcpy(at, &v, 4);
    }
  });
}

// The dense place in x of an element of y, for x's dims of 1 and those that divide y's.
class PlaceIn {
 public:
  PlaceIn(const CudnnTensorFacts& x, const CudnnTensorFacts& y) : x_(x), y_(y) {
    const auto &of_x = x.dims, &of_y = y.dims;
    if (of_x == of_y) {
      dense_every_ = 1;
    } else if (x.elements() == 1) {
      dense_every_ = y.elements();
    } else if (of_x.back() == 1 && std::equal(of_x.begin(), of_x.end() - 1, of_y.begin())) {
      dense_every_ = of_y.back();
    }
  }
  // Of element n of y, which is at `at`.
  size_t operator()(int64_t n, const std::vector<int64_t>& at) const {
    if (dense_every_ == 1) return static_cast<size_t>(n);
    if (dense_every_ > 1) return static_cast<size_t>(n / dense_every_);
    int64_t place = 0;
    for (size_t d = 0; d < x_.dims.size(); ++d)
      place = place * x_.dims[d] + at[d] / (y_.dims[d] / x_.dims[d]);
    return static_cast<size_t>(place);
  }

 private:
  const CudnnTensorFacts &x_, &y_;
  int64_t dense_every_ = 0;  // elements of y for one of x, in order; 0: it is not so simple
};

void multiply(const CudnnStep& s, const Values& a, const Values& b, Values& c) {
  const auto &da = s.inputs[0].dims, &db = s.inputs[1].dims;
  const size_t n = da.size();
  const int64_t rows = da[n - 2], terms = da[n - 1], columns = db[n - 1];
  CudnnTensorFacts batches = s.output, of_b = s.inputs[1];
  batches.dims.resize(n - 2), of_b.dims.resize(n - 2);
  batches.strides.assign(n - 2, 0);
  const PlaceIn in_b(of_b, batches);
  for_elements(batches, [&](int64_t batch, int64_t, const auto& at) {
    const float* pa = a.data() + batch * rows * terms;
    const float* pb = b.data() + static_cast<int64_t>(in_b(batch, at)) * terms * columns;
    float* pc = c.data() + batch * rows * columns;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < terms; ++k) {
        const float factor = pa[i * terms + k];
        for (int64_t j = 0; j < columns; ++j) pc[i * columns + j] += factor * pb[k * columns + j];
      }
  });
}

float pointwise(int mode, float x, float b, float t) {
  switch (mode) {
    case kCudnnAdd: return x + b;
    case kCudnnMul: return x * b;
    case kCudnnDiv: return x / b;
    case kCudnnSub: return x - b;
    case kCudnnExp: return std::exp(x);
    case kCudnnLog: return std::log(x);
    case kCudnnGreater: return x > b;
    case kCudnnGreaterEqual: return x >= b;
    case kCudnnSelect: return t != 0 ? x : b;
    default: return x;
  }
}

Values computed(const CudnnStep& s, const std::vector<const Values*>& in) {
  const bool is_max = s.kind == kCudnnOperationReduction && s.mode == kCudnnReduceMax;
  Values y(static_cast<size_t>(s.output.elements()),
           is_max ? -std::numeric_limits<float>::infinity() : 0.0f);
  if (s.kind == kCudnnOperationMatmul) {
    multiply(s, *in[0], *in[1], y);
  } else if (s.kind == kCudnnOperationReduction) {
    const PlaceIn in_y(s.output, s.inputs[0]);
    for_elements(s.inputs[0], [&](int64_t n, int64_t, const auto& at) {
      float& sum = y[in_y(n, at)];
      const float v = (*in[0])[static_cast<size_t>(n)];
      sum = is_max ? std::max(sum, v) : sum + v;
    });
  } else if (s.kind == kCudnnOperationReshape) {
    // Steps in x, which is dense, for the dims of y.
    const CudnnTensorFacts& x = s.inputs[0];
    const auto order = order_of(x, s.output);
    CudnnTensorFacts from = s.output;
    for (size_t d = 0; d < order.size(); ++d) {
      from.strides[d] = 1;
      for (size_t inner = order[d] + 1; inner < x.dims.size(); ++inner)
        from.strides[d] *= x.dims[inner];
    }
    for_elements(from, [&](int64_t n, int64_t place, const auto&) {
      y[static_cast<size_t>(n)] = (*in[0])[static_cast<size_t>(place)];
    });
  } else {
    std::vector<PlaceIn> places;
    for (const CudnnTensorFacts& input : s.inputs) places.emplace_back(input, s.output);
    for_elements(s.output, [&](int64_t n, int64_t, const auto& at) {
      auto operand = [&](size_t i) { return i < in.size() ? (*in[i])[places[i](n, at)] : 0.0f; };
      y[static_cast<size_t>(n)] = s.mode == kCudnnIndex
                                      ? static_cast<float>(at[static_cast<size_t>(s.axis)])
                                      : pointwise(s.mode, operand(0), operand(1), operand(2));
    });
  }
  for (float& v : y) v = rounded(s.output.type, v);
  return y;
}

}  // namespace

void cudnn_run(const CudnnProgram& program, const std::map<int64_t, std::byte*>& memory) {
  std::map<int64_t, Values> values;
  for (const CudnnStep& step : program.steps) {
    std::vector<const Values*> inputs;
    for (const CudnnTensorFacts& input : step.inputs) {
      auto known = values.find(input.id);
      if (known == values.end())
        known = values.emplace(input.id, load(input, memory.at(input.id))).first;
      inputs.push_back(&known->second);
    }
    Values y = computed(step, inputs);
    if (!step.output.is_virtual) store(step.output, y, memory.at(step.output.id));
    values.insert_or_assign(step.output.id, std::move(y));
  }
}

}  // namespace tessera::emulated_gpu
