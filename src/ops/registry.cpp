#include "ops/registry.h"

namespace tessera {
namespace {

constexpr std::string_view kPredicate = "its result is not a float";
constexpr std::string_view kSource = "has no operands";
constexpr std::string_view kConstant = "a constant to the gradient by definition";
constexpr std::string_view kBackward = "is a gradient itself; second derivatives are not taken";
constexpr std::string_view kTransfer = "stands in graphs that have their gradients already";
constexpr std::string_view kContinues = "continues a sequence with weights that do not change";
constexpr std::string_view kOptimizer = "part of the update, which is not differentiated";

constexpr OpRecord kOps[] = {
    {"input", Tier::kInput, kSource},
    {"constant", Tier::kPrimitive, kSource},
    {"table", Tier::kPrimitive, kSource},
    {"iota", Tier::kPrimitive, kSource},
    {"neg", Tier::kPrimitive, ""},
    {"exp", Tier::kPrimitive, ""},
    {"log", Tier::kPrimitive, ""},
    {"sqrt", Tier::kPrimitive, ""},
    {"rsqrt", Tier::kPrimitive, ""},
    {"tanh", Tier::kPrimitive, ""},
    {"logistic", Tier::kPrimitive, ""},
    {"erf", Tier::kPrimitive, ""},
    {"sin", Tier::kPrimitive, ""},
    {"cos", Tier::kPrimitive, ""},
    {"abs", Tier::kPrimitive, ""},
    {"is_finite", Tier::kPrimitive, kPredicate},
    {"not", Tier::kPrimitive, kPredicate},
    {"add", Tier::kPrimitive, ""},
    {"sub", Tier::kPrimitive, ""},
    {"mul", Tier::kPrimitive, ""},
    {"div", Tier::kPrimitive, ""},
    {"max", Tier::kPrimitive, ""},
    {"min", Tier::kPrimitive, ""},
    {"pow", Tier::kPrimitive, ""},
    {"and", Tier::kPrimitive, kPredicate},
    {"or", Tier::kPrimitive, kPredicate},
    {"compare", Tier::kPrimitive, kPredicate},
    {"select", Tier::kPrimitive, ""},
    {"convert", Tier::kPrimitive, ""},
    {"stop_gradient", Tier::kPrimitive, kConstant},
    {"reshape", Tier::kPrimitive, ""},
    {"transpose", Tier::kPrimitive, ""},
    {"broadcast", Tier::kPrimitive, ""},
    {"slice", Tier::kPrimitive, ""},
    {"pad", Tier::kPrimitive, ""},
    {"concatenate", Tier::kPrimitive, ""},
    {"gather", Tier::kPrimitive, ""},
    {"scatter_add", Tier::kPrimitive, ""},
    {"reduce_sum", Tier::kPrimitive, ""},
    {"reduce_max", Tier::kPrimitive, kConstant},
    {"dot", Tier::kPrimitive, ""},
    {"random_bits", Tier::kPrimitive, kPredicate},
    {"unflatten", Tier::kPrimitive, ""},
    {"flatten", Tier::kPrimitive, ""},
    {"unstack", Tier::kPrimitive, ""},
    {"offload", Tier::kPrimitive, kTransfer},
    {"fetch", Tier::kPrimitive, kTransfer},
    {"vary", Tier::kCollective, ""},
    {"as_replicated", Tier::kCollective, kOptimizer},
    {"all_reduce", Tier::kCollective, ""},
    {"all_gather", Tier::kCollective, ""},
    {"reduce_scatter", Tier::kCollective, ""},
    {"gather_replicated", Tier::kCollective, ""},
    {"local_slice", Tier::kCollective, ""},
    {"all_to_all", Tier::kCollective, ""},
    {"axis_index", Tier::kCollective, kPredicate},
    {"linear", Tier::kComposite, ""},
    {"linear_dx", Tier::kComposite, kBackward},
    {"linear_dw", Tier::kComposite, kBackward},
    {"add_bias", Tier::kComposite, ""},
    {"add_bias_backward", Tier::kComposite, kBackward},
    {"embedding", Tier::kComposite, ""},
    {"embedding_backward", Tier::kComposite, kBackward},
    {"rms_norm", Tier::kComposite, ""},
    {"rms_norm_backward", Tier::kComposite, kBackward},
    {"layer_norm", Tier::kComposite, ""},
    {"layer_norm_backward", Tier::kComposite, kBackward},
    {"gelu", Tier::kComposite, ""},
    {"gelu_backward", Tier::kComposite, kBackward},
    {"dropout", Tier::kComposite, ""},
    {"rope", Tier::kComposite, ""},
    {"rope_at", Tier::kComposite, kContinues},
    {"attention", Tier::kComposite, ""},
    {"attention_backward", Tier::kComposite, kBackward},
    {"cached_attention", Tier::kComposite, kContinues},
    {"cache_write", Tier::kComposite, kContinues},
    {"swiglu", Tier::kComposite, ""},
    {"swiglu_backward", Tier::kComposite, kBackward},
    {"linear_cross_entropy", Tier::kComposite, ""},
    {"linear_cross_entropy_backward", Tier::kComposite, kBackward},
    {"linear_log_sum_exp", Tier::kComposite, ""},
    {"linear_log_sum_exp_backward", Tier::kComposite, kBackward},
    {"count_targets", Tier::kComposite, kPredicate},
    {"adamw", Tier::kComposite, kOptimizer},
    {"sgd", Tier::kComposite, kOptimizer},
    {"lion", Tier::kComposite, kOptimizer},
    {"sum_squares", Tier::kComposite, kOptimizer},
    {"sum_n", Tier::kComposite, ""},
};

}  // namespace

std::span<const OpRecord> op_registry() { return kOps; }

}  // namespace tessera
