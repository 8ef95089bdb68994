// Making descriptors of cuDNN, setting their attributes and finalizing them. Which attributes there
// are, of which type, how many values they have and which have to be there is a table, after
// cuDNN's documentation of its backend interface.
#include "cudnn_objects.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "cudnn_graphs.h"

namespace tessera::emulated_gpu {
namespace {

thread_local std::string last_error;

struct Rule {
  int descriptor, name, type;
  int64_t least, most;
  bool required;
  int referred = -1;  // the kind of descriptor, where it is one
};
constexpr int64_t kMany = 1 << 16;
constexpr int kAnyOperation = -2;

constexpr Rule kRules[] = {
    {kCudnnTensor, kCudnnTensorDataType, kCudnnTypeDataType, 1, 1, true},
    {kCudnnTensor, kCudnnTensorDims, kCudnnTypeInt64, 1, 8, true},
    {kCudnnTensor, kCudnnTensorStrides, kCudnnTypeInt64, 1, 8, true},
    {kCudnnTensor, kCudnnTensorId, kCudnnTypeInt64, 1, 1, true},
    {kCudnnTensor, kCudnnTensorAlignment, kCudnnTypeInt64, 1, 1, true},
    {kCudnnTensor, kCudnnTensorIsVirtual, kCudnnTypeBoolean, 1, 1, false},
    {kCudnnTensor, kCudnnTensorIsByValue, kCudnnTypeBoolean, 1, 1, false},
    {kCudnnMatmul, kCudnnMatmulPrecision, kCudnnTypeDataType, 1, 1, true},
    {kCudnnPointwise, kCudnnPointwiseMode, kCudnnTypePointwiseMode, 1, 1, true},
    {kCudnnPointwise, kCudnnPointwisePrecision, kCudnnTypeDataType, 1, 1, true},
    {kCudnnPointwise, kCudnnPointwiseAxis, kCudnnTypeInt64, 1, 1, false},
    {kCudnnReduction, kCudnnReductionOperator, kCudnnTypeReduction, 1, 1, true},
    {kCudnnReduction, kCudnnReductionPrecision, kCudnnTypeDataType, 1, 1, true},
    {kCudnnOperationMatmul, kCudnnMatmulA, kCudnnTypeDescriptor, 1, 1, true, kCudnnTensor},
    {kCudnnOperationMatmul, kCudnnMatmulB, kCudnnTypeDescriptor, 1, 1, true, kCudnnTensor},
    {kCudnnOperationMatmul, kCudnnMatmulC, kCudnnTypeDescriptor, 1, 1, true, kCudnnTensor},
    {kCudnnOperationMatmul, kCudnnMatmulDescriptor, kCudnnTypeDescriptor, 1, 1, true, kCudnnMatmul},
    {kCudnnOperationPointwise, kCudnnPointwiseDescriptor, kCudnnTypeDescriptor, 1, 1, true,
     kCudnnPointwise},
    {kCudnnOperationPointwise, kCudnnPointwiseX, kCudnnTypeDescriptor, 1, 1, true, kCudnnTensor},
    {kCudnnOperationPointwise, kCudnnPointwiseB, kCudnnTypeDescriptor, 1, 1, false, kCudnnTensor},
    {kCudnnOperationPointwise, kCudnnPointwiseT, kCudnnTypeDescriptor, 1, 1, false, kCudnnTensor},
    {kCudnnOperationPointwise, kCudnnPointwiseY, kCudnnTypeDescriptor, 1, 1, true, kCudnnTensor},
    {kCudnnOperationReduction, kCudnnReductionX, kCudnnTypeDescriptor, 1, 1, true, kCudnnTensor},
    {kCudnnOperationReduction, kCudnnReductionY, kCudnnTypeDescriptor, 1, 1, true, kCudnnTensor},
    {kCudnnOperationReduction, kCudnnReductionDescriptor, kCudnnTypeDescriptor, 1, 1, true,
     kCudnnReduction},
    {kCudnnOperationReshape, kCudnnReshapeX, kCudnnTypeDescriptor, 1, 1, true, kCudnnTensor},
    {kCudnnOperationReshape, kCudnnReshapeY, kCudnnTypeDescriptor, 1, 1, true, kCudnnTensor},
    {kCudnnOperationGraph, kCudnnGraphHandle, kCudnnTypeHandle, 1, 1, false},
    {kCudnnOperationGraph, kCudnnGraphOperations, kCudnnTypeDescriptor, 1, kMany, true,
     kAnyOperation},
    {kCudnnHeuristics, kCudnnHeuristicsGraph, kCudnnTypeDescriptor, 1, 1, true,
     kCudnnOperationGraph},
    {kCudnnHeuristics, kCudnnHeuristicsMode, kCudnnTypeHeuristicsMode, 1, 1, true},
    {kCudnnHeuristics, kCudnnHeuristicsDevice, kCudnnTypeDescriptor, 1, 1, false,
     kCudnnDeviceProperties},
    {kCudnnEngine, kCudnnEngineGraph, kCudnnTypeDescriptor, 1, 1, true, kCudnnOperationGraph},
    {kCudnnEngine, kCudnnEngineIndex, kCudnnTypeInt64, 1, 1, true},
    {kCudnnEngine, kCudnnEngineDevice, kCudnnTypeDescriptor, 1, 1, false, kCudnnDeviceProperties},
    {kCudnnKnobChoice, kCudnnKnobType, kCudnnTypeKnob, 1, 1, true},
    {kCudnnKnobChoice, kCudnnKnobValue, kCudnnTypeInt64, 1, 1, true},
    {kCudnnEngineConfig, kCudnnConfigEngine, kCudnnTypeDescriptor, 1, 1, true, kCudnnEngine},
    {kCudnnEngineConfig, kCudnnConfigKnobs, kCudnnTypeDescriptor, 1, kMany, false,
     kCudnnKnobChoice},
    {kCudnnPlan, kCudnnPlanConfig, kCudnnTypeDescriptor, 1, 1, true, kCudnnEngineConfig},
    {kCudnnPlan, kCudnnPlanHandle, kCudnnTypeHandle, 1, 1, false},
    {kCudnnPlan, kCudnnPlanDevice, kCudnnTypeDescriptor, 1, 1, false, kCudnnDeviceProperties},
    {kCudnnVariantPack, kCudnnPackIds, kCudnnTypeInt64, 1, kMany, true},
    {kCudnnVariantPack, kCudnnPackPointers, kCudnnTypePointer, 1, kMany, true},
    {kCudnnVariantPack, kCudnnPackWorkspace, kCudnnTypePointer, 1, 1, true},
    {kCudnnDeviceProperties, kCudnnDeviceJson, kCudnnTypeChar, 2, kMany, true},
};

bool is_operation(int type) {
  return type == kCudnnOperationMatmul || type == kCudnnOperationPointwise ||
         type == kCudnnOperationReduction || type == kCudnnOperationReshape;
}

size_t bytes_of(int type) {
  switch (type) {
    case kCudnnTypeBoolean:
    case kCudnnTypeChar: return 1;
    case kCudnnTypeInt64:
    case kCudnnTypePointer:
    case kCudnnTypeHandle:
    case kCudnnTypeDescriptor: return 8;
    default: return 4;
  }
}

const Rule* rule_of(int descriptor, int name) {
  for (const Rule& rule : kRules)
    if (rule.descriptor == descriptor && rule.name == name) return &rule;
  return nullptr;
}
std::string number(int n) { return std::to_string(n); }

CudnnObject* object(cudnnDescriptor descriptor, const char* call) {
  return object_of(Handle::kCudnnDescriptor, cudnn_objects().descriptors, descriptor, call,
                   "descriptor");
}

std::string tensor_fault(const CudnnObject& o) {
  const CudnnTensorFacts t(o);
  if (t.dims.size() != t.strides.size()) return "a tensor has other dims than strides";
  for (int64_t d : t.dims)
    if (d <= 0) return "a dim of a tensor is not positive";
  for (int64_t s : t.strides)
    if (s <= 0) return "a stride of a tensor is not positive";
  if (t.alignment <= 0 || (t.alignment & (t.alignment - 1)) != 0)
    return "the alignment of a tensor is no power of two";
  if (t.is_virtual && t.by_value) return "a tensor is virtual and by value";
  if (cudnn_element_bytes(t.type) == 0) return "a type of elements that is not known here";
  return "";
}

std::string pack_fault(const CudnnObject& o) {
  const auto ids = o.all<int64_t>(kCudnnPackIds);
  if (ids.size() != o.all<void*>(kCudnnPackPointers).size())
    return "a variant pack has other ids than pointers";
  if (std::set<int64_t>(ids.begin(), ids.end()).size() != ids.size())
    return "an id stands twice in a variant pack";
  return "";
}

// Where a computation is planned for: a handle or a described device, not both.
std::string target_fault(bool handle, bool described, const char* what) {
  if (!handle && !described) return std::string(what) + " has neither handle nor device";
  return "";
}

std::string fault_of(const CudnnObject& o) {
  std::string wrong;
  if (o.type == kCudnnTensor) return tensor_fault(o);
  if (o.type == kCudnnVariantPack) return pack_fault(o);
  if (is_operation(o.type)) return cudnn_check_operation(o);
  if (o.type == kCudnnOperationGraph) cudnn_program(o, wrong);
  if (o.type == kCudnnHeuristics) {
    const CudnnObject& graph = cudnn_object(o.one<cudnnDescriptor>(kCudnnHeuristicsGraph));
    wrong =
        target_fault(graph.has(kCudnnGraphHandle), o.has(kCudnnHeuristicsDevice), "a heuristic");
  }
  if (o.type == kCudnnEngine) {
    const CudnnObject& graph = cudnn_object(o.one<cudnnDescriptor>(kCudnnEngineGraph));
    wrong = target_fault(graph.has(kCudnnGraphHandle), o.has(kCudnnEngineDevice), "an engine");
  }
  if (o.type == kCudnnPlan)
    wrong = target_fault(o.has(kCudnnPlanHandle), o.has(kCudnnPlanDevice), "a plan");
  return wrong;
}

// Engines and knobs that the library has, by the version that it says.
cudnnStatus supported(const CudnnObject& o) {
  if (o.type == kCudnnDeviceProperties) {
    const auto text = o.all<char>(kCudnnDeviceJson);
    if (std::string(text.begin(), text.end()).find("\"deviceVer\": 900") == std::string::npos)
      return cudnn_declined("a device that is not known", kCudnnBadParam);
  }
  if (o.type != kCudnnEngineConfig) return kCudnnSuccess;
  for (cudnnDescriptor d : o.all<cudnnDescriptor>(kCudnnConfigKnobs)) {
    const CudnnObject& knob = cudnn_object(d);
    if (knob.one<int>(kCudnnKnobType) == kCudnnKnobStages &&
        knob.one<int64_t>(kCudnnKnobValue) == 4 && cudnnGetVersion() < 92500)
      return cudnn_declined("no engine with so many stages");
  }
  return kCudnnSuccess;
}

}  // namespace

CudnnObjects& cudnn_objects() {
  static auto* only = new CudnnObjects;
  return *only;
}
const CudnnObject& cudnn_object(cudnnDescriptor descriptor) {
  static const CudnnObject nothing{};
  const CudnnObject* found = object(descriptor, "cuDNN");
  return found ? *found : nothing;
}
cudnnStatus cudnn_wrong(const std::string& what) {
  found("cuDNN: " + what);
  last_error = what;
  return kCudnnBadParam;
}
cudnnStatus cudnn_declined(const std::string& why, cudnnStatus status) {
  last_error = why;
  return status;
}

}  // namespace tessera::emulated_gpu

using namespace tessera::emulated_gpu;

extern "C" {

// The version may be another one, for tests: whole numbers as cuDNN writes them.
size_t cudnnGetVersion() {
  const char* chosen = std::getenv("TESSERA_EMULATED_CUDNN_VERSION");
  return chosen ? std::strtoul(chosen, nullptr, 10) : 91900;
}
const char* cudnnGetErrorString(cudnnStatus status) {
  switch (status) {
    case kCudnnSuccess: return "CUDNN_STATUS_SUCCESS";
    case kCudnnNotInitialized: return "CUDNN_STATUS_NOT_INITIALIZED";
    case kCudnnBadParam: return "CUDNN_STATUS_BAD_PARAM";
    case kCudnnNotSupported: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}
void cudnnGetLastErrorString(char* text, size_t bytes) {
  if (bytes == 0) return;
  std::strncpy(text, last_error.c_str(), bytes - 1);
  text[bytes - 1] = 0;
  last_error.clear();
}

cudnnStatus cudnnBackendCreateDescriptor(int type, cudnnDescriptor* descriptor) {
  const std::lock_guard lock(machine().mutex);
  if (std::none_of(std::begin(kRules), std::end(kRules),
                   [&](const Rule& rule) { return rule.descriptor == type; }))
    return cudnn_wrong("a kind of descriptor that is not known here: " + number(type));
  auto& all = cudnn_objects().descriptors;
  all.push_back({.type = type});
  *descriptor =
      make_handle<cudnnDescriptor>(Handle::kCudnnDescriptor, static_cast<int>(all.size()) - 1);
  return kCudnnSuccess;
}

cudnnStatus cudnnBackendDestroyDescriptor(cudnnDescriptor descriptor) {
  const std::lock_guard lock(machine().mutex);
  CudnnObject* o = object(descriptor, __func__);
  if (!o) return kCudnnBadParam;
  o->destroyed = true;
  return kCudnnSuccess;
}

cudnnStatus cudnnBackendSetAttribute(cudnnDescriptor descriptor, int name, int type, int64_t count,
                                     const void* values) {
  const std::lock_guard lock(machine().mutex);
  CudnnObject* o = object(descriptor, __func__);
  if (!o) return kCudnnBadParam;
  if (o->finalized) return cudnn_wrong("an attribute is set of a descriptor that is finalized");
  const Rule* rule = rule_of(o->type, name);
  if (!rule)
    return cudnn_wrong("attribute " + number(name) + " is not one of descriptor " +
                       number(o->type));
  if (rule->type != type) return cudnn_wrong("attribute " + number(name) + " has another type");
  if (count < rule->least || count > rule->most || !values)
    return cudnn_wrong("attribute " + number(name) + " has another number of values");
  const auto* begin = static_cast<const std::byte*>(values);
  if (type == kCudnnTypeDescriptor) {
    for (int64_t i = 0; i < count; ++i) {
      cudnnDescriptor other = nullptr;
      std::memcpy(&other, begin + i * 8, 8);
      const CudnnObject* referred = object(other, __func__);
      if (!referred) return kCudnnBadParam;
      if (!referred->finalized) return cudnn_wrong("a descriptor is used before it is finalized");
      if (rule->referred == kAnyOperation ? !is_operation(referred->type)
                                          : referred->type != rule->referred)
        return cudnn_wrong("attribute " + number(name) + " is another kind of descriptor");
    }
  }
  o->attributes[name].assign(begin, begin + count * static_cast<int64_t>(bytes_of(type)));
  return kCudnnSuccess;
}

cudnnStatus cudnnBackendFinalize(cudnnDescriptor descriptor) {
  const std::lock_guard lock(machine().mutex);
  CudnnObject* o = object(descriptor, __func__);
  if (!o) return kCudnnBadParam;
  if (o->finalized) return cudnn_wrong("a descriptor is finalized twice");
  for (const Rule& rule : kRules) {
    if (rule.descriptor == o->type && rule.required && !o->has(rule.name))
      return cudnn_wrong("descriptor " + number(o->type) + " is finalized without attribute " +
                         number(rule.name));
  }
  if (const std::string fault = fault_of(*o); !fault.empty()) return cudnn_wrong(fault);
  if (const cudnnStatus status = supported(*o)) return status;
  // It loads kernels, which a capture does not allow.
  if (o->type == kCudnnPlan && !machine().may_call("finalizing a plan of cuDNN"))
    return kCudnnExecutionFailed;
  o->finalized = true;
  return kCudnnSuccess;
}

}  // extern "C"
