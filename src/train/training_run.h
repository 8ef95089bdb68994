#pragma once
#include <atomic>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/directory_lock.h"
#include "flight/flight_recorder.h"
#include "hub/pretrained_weights.h"
#include "observe/dashboard.h"
#include "observe/machine_peak.h"
#include "observe/progress.h"
#include "observe/reports.h"
#include "observe/run_report.h"
#include "observe/status_block.h"
#include "options/checkpoint_tiers.h"
#include "options/run_record.h"
#include "planning/host_memory.h"
#include "planning/job_plan.h"
#include "programs/session.h"
#include "runtime/communicator.h"
#include "runtime/control.h"
#include "runtime/observers.h"
#include "train/checkpoint_saver.h"
#include "train/fault_injector.h"
#include "train/loss_history.h"
#include "train/memory_tracker.h"
#include "train/rank_watch.h"
#include "train/straggler_watch.h"
#include "train/training_data.h"
#include "train/training_profile.h"
#include "train/training_reader.h"
#include "train/watchdog.h"
#include "weights/adapter_weights.h"

namespace tessera {

// Of a checkpoint, in kDataFolder: to_bytes(StreamState).
inline constexpr std::string_view kStreamName = "lanes.bin";

// The device side that a run is given, and the other ranks of its job.
struct Device {
  Backend* backend = nullptr;
  ThreadPool* pool = nullptr;
  Control* control = nullptr;                  // none: one rank
  const Communicator* communicator = nullptr;  // tells how long was waited for others, if known
  int ranks_per_host = 1;                      // on this host
  std::string host_id = {};                    // ranks of equal ones share a host
  bool first_on_host = true;  // prepares what the ranks of a host share: token caches
  std::string job_id = {};    // of the agent that started the ranks; empty: drawn by rank 0
  int attempt = 0;            // restarts of the job so far
  std::string kind = "cpu";
  std::string description;             // "CPU, 2 threads, amx"
  std::optional<int64_t> memory = {};  // free bytes of its own; none: it uses the host's
  FlightRecorder* flight = nullptr;    // of this rank; none: nothing is recorded
  MachinePeak peak;                    // of matrix products in the compute dtype
  std::function<SpeedOfLight()> measure_light = {};  // takes some tenths of a second
  std::filesystem::path system_root = "/";           // where the host's /proc and cgroups are
};

// How a run ended; the program's exit status follows from it.
enum class RunEnd { kFinished, kInterrupted };

// A training job from options to the last checkpoint: data, session, the loop, validation, saving.
// One call of run() does all. A request to end (base/interruption.h) to any rank makes all finish
// the step, save and return kInterrupted; what is not a step is given up. A checkpoint that cannot
// be written is a warning as long as steps follow it, or another of its directories has it;
// UserError if it was to be the last of a finished run.
class TrainingRun {
 public:
  TrainingRun(const RunConfig& config, const ModelConfig& model, Device device);
  ~TrainingRun();
  RunEnd run();

  // The pieces, for tests.
  Session& session() { return *session_; }
  const RunRecord& record() const { return record_; }

 private:
  // A step that was started and of which no result was read yet.
  struct RunningStep {
    StepReport report;
    std::vector<Batch> batches;
    std::vector<std::vector<int64_t>> row_keys;  // of each of them
    std::vector<MicroBatch> micro_batches;       // views of both
    PendingStep update;
    double start_seconds = 0, seconds_waited = 0;  // Communicator::seconds_waited before it
  };

  void run_to_the_end();
  int rank() const { return device_.control ? device_.control->rank() : 0; }
  int world_size() const { return device_.control ? device_.control->world_size() : 1; }
  // Finds first_on_host_; returns what divides the numbers of ranks of all hosts.
  int64_t meet_hosts();
  void check_ranks_agree() const;
  bool stop_requested() const;
  CheckpointGroup checkpoint_group() const;
  void prepare_data();
  void make_tokenizer() const;
  // Work of the ranks that are chosen, which may take long; all return after it. A request to stop
  // reaches all ranks meanwhile.
  void while_others_wait(bool chosen, const std::string& what,
                         const std::function<void()>& work) const;
  // Work of rank 0 alone, of every rank: its results, on all ranks. What it throws as a UserError
  // or as Interrupted all ranks throw; `on_all_ranks` names the first rank that did.
  std::string on_first_rank(const std::string& what,
                            const std::function<std::string()>& work) const;
  std::vector<std::string> on_all_ranks(const std::string& what,
                                        const std::function<std::string()>& work) const;
  std::vector<DataSource> find_sources() const;
  void check_same_text() const;
  void check_baselines() const;  // whether the data are such that there can be any
  void check_memory();
  bool will_stream() const;
  void check_budgets() const;
  std::optional<MemoryShortage> memory_shortage(int64_t staging) const;
  // Of a rank; more once the data are known.
  int64_t memory_of_lanes() const;
  int64_t memory_of_baselines() const;
  std::string what_would_fit(const MemoryLimits& limits) const;
  void open_checkpoint_directories();
  // Checkpoints that turned out to be damaged, and what is wrong with the last of them.
  struct Damaged {
    std::set<std::filesystem::path> paths;
    std::string last;
  };
  std::optional<std::filesystem::path> find_checkpoint(Damaged& damaged);
  // Opens the newest checkpoint that is whole for all ranks so far as is known before tensors are
  // read, or `verified`. `newest` finds one on rank 0.
  using FindNewest = std::function<std::optional<std::filesystem::path>(const Damaged&)>;
  std::optional<std::filesystem::path> open_newest(const FindNewest& newest, Damaged& damaged,
                                                   bool verified = false);
  // Which of the tiers have this very checkpoint.
  void find_in_tiers(const std::filesystem::path& checkpoint, const Damaged& damaged);
  void skip(const std::filesystem::path& checkpoint, const std::string& damage, Damaged& damaged);
  std::optional<std::filesystem::path> newest_checkpoint(
      const std::set<std::filesystem::path>& damaged) const;
  struct Tier;
  std::string lock_tier(Tier& tier, const std::string& job) const;
  // That each host has its own is an error, or is found out.
  void look_at_directory(Tier& tier, const std::string& job, const std::string& lock_token);
  // The first rank that does not see the lock of rank 0 there: what an error says of it.
  std::string who_sees_another(const std::filesystem::path& directory,
                               const std::string& lock_token) const;
  // Of a checkpoint whose parts are on several hosts: what ranks need of others, if it is little.
  void share_missing_boxes();
  void require_none_seen() const;
  void require_own_directory(const std::optional<std::filesystem::path>& resumed) const;
  void require_no_later(const Damaged& damaged) const;
  std::string open_on_all_ranks(const std::filesystem::path& checkpoint,
                                const std::string& manifest_hash, bool verified);
  std::string find_damage(const std::string& what, const std::function<void()>& work);
  void open_pretrained();
  void load_weights();
  std::filesystem::path model_directory() const;
  std::filesystem::path pieces_directory() const;
  void require_same_directory(const std::filesystem::path& directory) const;
  void check_final_model() const;
  void save_final_model();
  void resume(std::filesystem::path checkpoint, Damaged& damaged);
  void load(const std::filesystem::path& checkpoint, const RunRecord& saved);
  void take_counters(const RunRecord& saved);
  void open_tokenizer(const std::filesystem::path& checkpoint);
  void require_same_tokenizer(const std::filesystem::path& checkpoint,
                              const RunRecord& saved) const;
  void record_inputs();
  void warn_of_changes(const RunRecord& saved) const;
  void serve_status();
  void open_dashboard();
  void fill_dashboard();
  void open_sinks();
  void tell_formulas();
  void open_console();
  // How many steps there are, for console and dashboard.
  void tell_total_steps();
  // What the run does besides steps, for the console.
  void tell_doing(const char* what);
  void track_memory();
  void tell_memory(const std::string& point, bool in_step = false);
  bool tracks_step(int64_t batch) const;
  NodeObserver step_observer();
  void train();
  void open_reader();
  void load_stream_state(const std::filesystem::path& checkpoint, const RunRecord& saved);
  // tessera::try_reading() with reading_error_.
  bool try_reading(const std::function<void()>& read);
  // UserError where that was why the run stops, on any rank.
  void require_all_read() const;
  // The batches of the next step. False where the data has ended, or where the run is stopping.
  bool fetch(std::vector<Batch>& batches);
  bool start_step();  // false as fetch() is
  // Reads the results of the oldest steps that were started, all but so many.
  void finish_steps(size_t but);
  void finish_step(RunningStep& step);
  std::vector<int64_t> row_keys_of(const Batch& batch) const;
  void report_skip(const RunningStep& step);
  // UserError where more updates in a row "were skipped" than may be.
  void require_few_skips(int64_t step, const std::string& what, const std::string& why) const;
  // The guards of a run: docs/guards.md.
  void open_guards();
  void start_watching();
  [[noreturn]] void end_stalled(const std::string& what);
  // Where a step is, for the watchdog.
  void in_phase(const char* phase);
  void watch_stragglers(const StepReport& report);
  void tell_stragglers(const std::optional<StragglerReport>& slowest);
  void limit_loss();
  void watch_targets() const;
  void watch_loss(const RunningStep& step, bool spike);
  // Back to the newest checkpoint, after a spike; false where there is none.
  bool rewind();
  // The number of steps that the job will have, by its data and options.
  int64_t last_step() const;
  void evaluate_only();
  bool validate(int64_t limit_batches);  // whether there was a token to predict
  // Where it is due; a run that is asked to end leaves it to the one that goes on.
  void validate_after_step();
  // Of tiers, by their bits. They are due by the step that was started last; by rank 0's clock.
  uint32_t all_tiers() const { return (uint32_t{1} << tiers_.size()) - 1; }
  uint32_t due_by_steps() const;
  uint32_t due_by_time();
  // Of rank 0, by base/save_request.h.
  bool due_as_asked();
  void answer_who_asked(bool saved);
  // Whether one of them has the checkpoint that was loaded.
  bool goes_on_in_place() const;
  void begin_intervals();
  void save_if_improved();
  // Into those of the tiers that do not have this step or, with `on_failure`, anew into all: that
  // is called where it comes to nothing in all of them.
  void save(uint32_t tiers, std::function<void()> on_failure = {});
  // Ends the save that runs beside training: waits for it, or does so only if that takes no time.
  struct Saving;
  void tell_slow_save(const Saving& saving, double seconds, bool writes) const;
  void finish_save();
  void finish_save_if_done();
  bool skips_busy_save() const;
  bool saves() const { return config_.save_ckpt && !config_.checkpoint_dir.empty(); }
  // Whether this step has been saved or is being saved: anywhere, in a tier.
  bool saved() const {
    return last_saved_step_ == record_.step || (saving_ && saving_->step == record_.step);
  }
  bool saved_in(size_t tier) const;
  void finish();
  void prepare_answer() const;
  void tell_interruption() const;
  void tell_end(const char* failure = nullptr);
  bool values_due(int64_t steps) const {
    return config_.histogram_freq && steps % *config_.histogram_freq == 0;
  }
  // Together with all ranks. `gradient_factor`: from what the gradients' slots hold to the
  // gradient.
  void tell_values(int64_t batch, double gradient_factor);
  void print_baselines();
  bool validation_due(bool epoch_ended) const;

  RunConfig config_;
  Device device_;
  int first_on_host_ = 0;  // the lowest rank of this host
  RunRecord record_;
  Schedule schedule_;
  TrainingData data_;
  std::vector<AttachedFile> attached_;  // the tokenizer, of the rank that saves it
  std::unique_ptr<Session> session_;
  std::unique_ptr<ParameterSource> pretrained_;  // until they are loaded
  std::unique_ptr<AdapterWeights> adapter_;      // likewise
  std::string pretrained_path_;
  CheckpointOrigin origin_;  // of the checkpoints that this run writes
  struct Tier {
    CheckpointTier options;
    std::unique_ptr<CheckpointLock> lock;  // on the rank that makes the directory
    bool apart = false;                    // hosts have directories of their own
    bool usable = true;                    // a restart may go on without one of several
    int64_t last_saved_step = -1;
    std::filesystem::path last_saved_path;
    double last_begin_seconds = 0;  // of its last save, also by a process before, or of training
  };
  std::vector<Tier> tiers_;                          // none where nothing is saved
  std::unique_ptr<CheckpointReader> to_resume_;      // until it is loaded
  std::vector<std::unique_ptr<MetricsSink>> sinks_;  // of rank 0, but for a server
  bool sinks_are_open_ = false;
  Dashboard* dashboard_ = nullptr;          // of rank 0's sinks, where it is asked for
  std::unique_ptr<StatusBlock> console_;    // on rank 0, where there is a terminal
  std::unique_ptr<MemoryTracker> memory_;   // on rank 0, where it is asked for
  std::vector<MemoryReport> early_memory_;  // until there are sinks
  RunningAverage average_;
  std::optional<RunReport> report_;  // where it is asked for
  std::unique_ptr<HashRecorder> hashes_;
  TrainingProfile profile_;
  std::optional<TrainingReader> reader_;
  StreamState stream_state_;   // that it begins with
  std::string reading_error_;  // of this rank, which has ended the run
  std::deque<RunningStep> running_;
  std::optional<StepReport> untold_;  // of the last step where it was not --logging_freq's turn
  int64_t total_steps_ = 0;
  // Where checkpoints are saved; behind what it reads.
  std::unique_ptr<CheckpointSaver> saver_;
  struct Saving {
    int64_t step = 0;
    uint32_t tiers = 0;
    bool good = true;    // no update was being skipped
    bool asked = false;  // it was asked for
    std::function<void()> on_failure;
  };
  std::optional<Saving> saving_;  // started and not finished
  bool saves_beside_training_ = false;
  bool warned_of_shortage_ = false;
  uint32_t announced_tiers_ = 0;  // that rank 0 found to be due by time
  // Of rank 0, from when on there is to be a checkpoint that was asked for; none: no answer is due.
  std::optional<double> asked_for_;
  int64_t first_step_ = 0, last_saved_step_ = -1;
  int64_t steps_done_ = 0;  // by this process, those that a rewind undid included
  double start_seconds_ = 0, train_start_seconds_ = 0, last_step_end_seconds_ = 0;
  double last_validation_loss_ = -1;
  int64_t validated_at_ = -1;     // the step whose weights saw the validation text ...
  bool validated_whole_ = false;  // ... all of it
  FaultInjector faults_;
  std::optional<LossHistory> losses_;  // where spikes are looked for
  double loss_limit_ = 0;              // of the step that was started last
  std::string spike_text_;             // of a spike that is to be undone
  std::optional<StragglerWatch> stragglers_;
  std::atomic<int64_t> watched_step_ = 0;
  std::atomic<const char*> step_phase_ = "starting";
  bool stopping_ = false;  // all ranks agreed to end after this step
  double flops_per_micro_batch_ = 0, recomputed_per_micro_batch_ = 0;
  std::unique_ptr<Watchdog> watchdog_;  // of the steps; looks at the members above
};

}  // namespace tessera
