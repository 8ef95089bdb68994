#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "backends/xla/client.h"
#include "backends/xla/compile_cache.h"
#include "backends/xla/rank_memory.h"
#include "runtime/backend.h"
#include "runtime/control.h"

namespace tessera::xla {

// Programs compiled whole by XLA, for its CPU. Ranks are processes of one host, and replicas of one
// program to XLA: it lives in the process of rank 0, which maps the state of all others and runs
// each program for all when all have come (docs/decisions/0029-ranks-of-xla.md). Calls below are
// made by all ranks alike.
//
// What XLA does not say: values of single nodes (observers are refused) and times of nodes. Memory
// of programs is its compiler's account.
class XlaBackend final : public Backend {
 public:
  struct Options {
    std::filesystem::path plugin;  // that of XLA's CPU
    std::filesystem::path cache;   // of compiled programs; empty: none
  };
  // `control` of a job of several ranks, else nullptr; outlives the backend.
  XlaBackend(Options options, Control* control);
  ~XlaBackend() override;

  std::unique_ptr<Executable> compile(const Graph& graph) override;
  std::unique_ptr<State> make_state() override;
  std::unique_ptr<Arenas> make_arenas(const ProgramMemory& memory) override;

  bool shows_values() const override { return false; }

  // "XLA, cpu, plug-in 0.81".
  const std::string& description() const { return description_; }
  // Programs that XLA did not compile since the cache had them; of rank 0.
  int64_t cache_hits() const { return cache_ ? cache_->hits() : 0; }
  // Slots that programs were to overwrite so far: where they lie, and elsewhere, from where they
  // were copied; of rank 0, for all.
  struct Updates {
    int64_t in_place = 0, copied = 0;
  };
  const Updates& updates() const { return updates_; }

  int rank() const { return control_ ? control_->rank() : 0; }
  int world_size() const { return control_ ? control_->world_size() : 1; }
  // The texts of all ranks, once all have come.
  std::vector<std::string> meet(const std::string& tag, const std::string& text) const;
  // Work of rank 0; all return when it is done.
  void lead(const std::string& tag, const std::function<void()>& work) const;

 private:
  friend class XlaExecutable;
  Control* control_;
  RankMemory memory_;
  MappedMemory mapped_;  // of rank 0
  // Of rank 0 alone.
  std::unique_ptr<Plugin> plugin_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<CompileCache> cache_;
  std::string description_;
  Updates updates_;
};

}  // namespace tessera::xla
