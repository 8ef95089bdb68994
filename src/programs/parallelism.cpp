#include "programs/parallelism.h"

#include <functional>
#include <numeric>

namespace tessera {
namespace {

// Whether a degree that divides may be given.
using MayBe = std::function<bool(int64_t degree)>;

std::string divisors(int64_t n, const MayBe& may_be = {}) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0 && (!may_be || may_be(d))) all.push_back(d);
  }
  return join(all, ", ");
}

void require_divisor(int64_t part, int64_t whole, std::string_view option, const std::string& what,
                     const MayBe& may_be = {}) {
  if (part < 1 || whole % part != 0) {
    throw UsageError(cat("--", option, " ", part, " does not divide ", what, " ", whole, ": give ",
                         divisors(whole, may_be)));
  }
}

bool is_hybrid(const RunConfig& config) {
  return config.sharding_strategy == "hybrid_shard" ||
         config.sharding_strategy == "_hybrid_shard_zero2";
}

int64_t data_ranks_of_host(int64_t ranks_per_host, int64_t tp) {
  return std::max<int64_t>(1, ranks_per_host / tp);
}

// Ranks of a shard group, of `data_ranks` data-parallel ones.
int64_t shard_ranks(const RunConfig& config, int64_t data_ranks, int64_t ranks_per_host,
                    int64_t tp) {
  const std::string& strategy = config.sharding_strategy;
  int64_t given = config.shard_degree.value_or(0);
  if (strategy == "no_shard") {
    if (given > 1) {
      throw UsageError(cat("--shard_degree ", given,
                           " and --sharding_strategy no_shard contradict each other: leave one of "
                           "them out"));
    }
    return 1;
  }
  if (given > 0) {
    require_divisor(given, data_ranks, "shard_degree",
                    tp > 1 ? cat("the data-parallel ranks (world / tensor_parallel_degree)")
                           : std::string("the world of"));
    return given;
  }
  // Shard within a host, replicate across hosts.
  return is_hybrid(config) ? std::gcd(data_ranks, data_ranks_of_host(ranks_per_host, tp))
                           : data_ranks;
}

bool cuts(const ModelConfig& model, int64_t tp) {
  const int64_t heads = model.num_key_value_heads;
  return model.num_heads % tp == 0 && model.intermediate_size % tp == 0 &&
         (heads % tp == 0 || tp % heads == 0);
}

void check_heads(const ModelConfig& model, int64_t tp) {
  auto require_parts = [&](int64_t size, const std::string& what) {
    if (size % tp != 0) {
      throw UsageError(cat("--tensor_parallel_degree ", tp, " does not divide the ", size, " ",
                           what, " of the model"));
    }
  };
  require_parts(model.num_heads, "heads (num_heads)");
  require_parts(model.intermediate_size, "columns of the MLP (intermediate_size)");
  int64_t heads = model.num_key_value_heads;
  if (heads % tp != 0 && tp % heads != 0) {
    throw UsageError(cat("--tensor_parallel_degree ", tp, " and the ", heads,
                         " key/value heads of the model: one must divide the other"));
  }
}

}  // namespace

std::string Parallelism::to_text() const {
  std::vector<std::string> parts;
  for (const Mesh::Axis& axis : mesh.axes()) parts.push_back(cat(axis.name, " ", axis.size));
  return parts.empty() ? "one rank" : join(parts, " x ");
}

std::string Parallelism::state_text() const {
  std::vector<std::string> parts;
  for (const Mesh::Axis& axis : mesh.axes()) {
    if (!data.replicate.contains(mesh.axis(axis.name)))
      parts.push_back(cat(axis.name, " ", axis.size));
  }
  return parts.empty() ? "whole parameters" : join(parts, " x ");
}

Parallelism make_parallelism(const RunConfig& config, const ModelConfig& model, int64_t world,
                             int64_t ranks_per_host) {
  constexpr int64_t kLargestWorld = 1 << 20;
  int64_t tp = config.tensor_parallel_degree;
  if (world > kLargestWorld) {
    throw UsageError(cat("--shard_degree x --tensor_parallel_degree make ", world,
                         " ranks: a job has at most ", kLargestWorld));
  }
  require_divisor(tp, world, "tensor_parallel_degree", "the world of",
                  [&](int64_t degree) { return cuts(model, degree); });
  check_heads(model, tp);
  int64_t shard = shard_ranks(config, world / tp, ranks_per_host, tp);
  // With more ranks than key/value heads, several share one.
  int64_t kv_heads = std::gcd(tp, model.num_key_value_heads);
  std::vector<Mesh::Axis> axes;
  auto add = [&](const std::string& name, int64_t size) {
    if (size > 1) axes.push_back({name, static_cast<int>(size)});
  };
  add("replicate", world / tp / shard);
  add("shard", shard);
  add("tp", kv_heads);
  add("tp_shared", tp / kv_heads);

  Parallelism p;
  p.mesh = Mesh(axes);
  auto axis = [&](const std::string& name) {
    for (const Mesh::Axis& a : axes) {
      if (a.name == name) return p.mesh.axis(name);
    }
    return AxisSet{};
  };
  p.data = {axis("shard"), axis("replicate")};
  p.tp = {axis("tp") | axis("tp_shared"), axis("tp")};
  p.sequence_parallel = tp > 1 && config.max_context_width % tp == 0;
  p.regather = shard > 1 && (config.sharding_strategy == "full_shard" ||
                             config.sharding_strategy == "hybrid_shard");
  p.reduce_dtype = config.reduce_dtype == "bf16" ? DType::kBF16 : DType::kF32;
  p.unsharded_accumulation = config.unsharded_accumulation;
  return p;
}

std::string shard_group_warning(const RunConfig& config, int64_t world, int64_t ranks_per_host) {
  const int64_t tp = config.tensor_parallel_degree;
  ranks_per_host = std::min(world, ranks_per_host);
  if (!is_hybrid(config) || config.shard_degree.value_or(0) > 0 || world % tp != 0) return "";
  const int64_t of_host = data_ranks_of_host(ranks_per_host, tp), data_ranks = world / tp;
  const int64_t shard = std::gcd(data_ranks, of_host);
  if (data_ranks == 1 || (shard == of_host && shard > 1)) return "";
  return cat("--sharding_strategy ", config.sharding_strategy, ": ",
             of_host == 1
                 ? std::string("a host has one data-parallel rank only")
                 : cat("a host has ", of_host, " data-parallel ranks, which do not divide ",
                       data_ranks, ", those of all hosts"),
             ", so ",
             shard == 1 ? std::string("nothing is sharded, and parameters are replicated over all")
                        : cat("parameters are sharded over groups of ", shard),
             "; give ", of_host == 1 ? "" : "hosts equal numbers of ranks, or ",
             "--shard_degree, one of ", divisors(data_ranks));
}

}  // namespace tessera
