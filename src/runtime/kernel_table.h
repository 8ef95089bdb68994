#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "ir/graph.h"

namespace tessera {

// Addresses of one launch. Workspace has the size that the kernel asked for, aligned to 64 bytes.
struct LaunchArguments {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  void* workspace = nullptr;
  int64_t reuse_distance = 0;  // of the first output, in bytes: plan/reuse_distance.h

  template <class T>
  const T* input(size_t i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <class T>
  T* output(size_t i) const {
    return static_cast<T*>(outputs[i]);
  }
};

// A node made ready to run: everything that can be decided from types is decided.
struct Launch {
  std::string kernel;  // "rms_norm avx512", for reports
  int64_t workspace_bytes = 0;
  std::function<void(const LaunchArguments&)> run;
  // For ops that communicate: `run` only begins, and this blocks until the results are there. May
  // be called again.
  std::function<void()> finish = {};
  // Of the same: when the exchange ran for which `finish` waited last, beside what was computed.
  std::shared_ptr<const TimeSpan> exchanged = {};
  // Why the kernels that stand before this one in the table declined; empty: it is the first.
  std::string declined = {};
};

// What a kernel may look at when it decides whether it takes a node.
struct PrepareContext {
  const Op& op;
  std::span<const TensorType> inputs;
  std::span<const TensorType> outputs;
  const Mesh& mesh;
  std::string label = {};  // "reduce_scatter in layers.3.mlp (backward)", for messages
};

// A launch, or the reason why this kernel declines.
using Prepared = std::variant<Launch, std::string>;
using Prepare = std::function<Prepared(const PrepareContext&)>;

// op -> kernels, best first, and behind them those for all ops. A node takes the first that accepts
// it; if none does, it is replaced by its decomposition; a primitive that no kernel takes is an
// error when the program is compiled.
class KernelTable {
 public:
  void add(std::string_view op, Prepare prepare) {
    kernels_[std::string(op)].push_back(std::move(prepare));
  }

  void add_for_all(Prepare prepare) { for_all_.push_back(std::move(prepare)); }

  // The launch of the first kernel that accepts, or all reasons in one line.
  Prepared prepare(const PrepareContext& context) const;

 private:
  std::map<std::string, std::vector<Prepare>> kernels_;
  std::vector<Prepare> for_all_;
};

}  // namespace tessera
