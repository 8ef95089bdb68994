#pragma once
#include <memory>
#include <string>
#include <vector>

#include "explain/held_memory.h"
#include "explain/kernel_use.h"
#include "explain/pass_changes.h"
#include "explain/savings.h"
#include "explain/state_memory.h"

namespace tessera {

// A device for which the kernels of a job are explained beside those of its own.
struct OtherDevice {
  std::string name;  // "avx512"
  const PlanTarget* target = nullptr;
  bool here = false;  // this machine could run it
};

// What `tessera explain` is asked about. All of it outlives the explanation.
struct ExplainedJob {
  const RunConfig& config;
  const ModelConfig& model;
  const PlanTarget& target;
  std::vector<OtherDevice> others;
};

// Answers questions about the plan of a job, with the numbers of `tessera plan`.
class Explanation {
 public:
  // UserError where the options do not go together.
  explicit Explanation(const ExplainedJob& job);

  // `topic`: memory, peak, kernels, passes, or what find_nodes() takes.
  std::string text(const std::string& topic);
  // All topics as one object, by their names: the same numbers, bytes as they are.
  std::string json(const std::vector<std::string>& topics);

  const Session& session() const { return *session_; }

 private:
  struct OtherKernels {
    std::string name;
    bool here = false;
    KernelUses uses;
    int64_t arena = 0;
  };

  const Session::Program& largest() const;
  std::vector<HeldStorage> held() const;
  std::vector<OtherKernels> other_kernels() const;
  std::string memory_text();
  std::string kernels_text();
  std::string passes_text() const;

  const ExplainedJob& job_;
  std::vector<PassChanges> passes_;
  std::unique_ptr<Session> session_;
  JobPlan plan_;
  ResidencyOptions residency_;
};

}  // namespace tessera
