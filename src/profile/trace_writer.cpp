#include "profile/trace_writer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/file.h"
#include "base/json_text.h"
#include "base/text.h"
#include "profile/instruction_text.h"

namespace tessera {
namespace {

constexpr size_t kNamedAtPeak = 40;
constexpr size_t kWrittenAtOnce = 1 << 20;

// Microseconds, to the nanosecond.
std::string us(int64_t nanoseconds) {
  return format("%lld.%03lld", static_cast<long long>(nanoseconds / 1000),
                static_cast<long long>(nanoseconds % 1000));
}

class TraceWriter {
 public:
  TraceWriter(const std::filesystem::path& path, const TraceContent& content)
      : content_(content), light_(content.light), file_(path) {
    for (const ProfiledProgram& program : content.programs)
      texts_.emplace(program.executable, InstructionTexts(program, light_, content.rank));
    for (const LiveBuffer& buffer : content.state) state_bytes_ += buffer.bytes;
    raise_light();
  }

  void write() {
    header();
    lanes();
    for (const ProfiledStep& step : content_.steps) write_step(step);
    text_ += "\n]}\n";
    file_.write(text_);
    file_.commit();
  }

 private:
  struct Slice {
    int64_t begin, end;
    std::string name;                     // of a group
    const InstructionText* of = nullptr;  // of an instruction
    std::string more = {};                // further arguments
  };

  // What ran faster than was measured shows that the machine can do more. Where nothing is known of
  // it, what it did is no ceiling.
  void raise_light() {
    if (!(light_.bandwidth > 0)) return;
    each_instruction(
        [&](const RunRecorder::Run& run, const RunRecorder::Instruction& done, int64_t begin) {
          texts_.at(run.program)
              .reached(static_cast<size_t>(done.index),
                       static_cast<double>(done.end - begin) * 1e-9, light_);
        });
  }

  template <class F>
  void each_instruction(F f) const {
    const auto& runs = content_.recorder->runs();
    for (size_t r = 0; r < runs.size(); ++r) each_instruction(r, f);
  }
  // f(run, instruction, when it began) of run `r`.
  template <class F>
  void each_instruction(size_t r, F f) const {
    const auto& runs = content_.recorder->runs();
    const auto& all = content_.recorder->instructions();
    const size_t end = r + 1 < runs.size() ? runs[r + 1].first : all.size();
    int64_t begin = runs[r].begin;
    for (size_t i = runs[r].first; i < end; ++i) {
      f(runs[r], all[i], content_.recorder->began(i).value_or(begin));
      begin = all[i].end;
    }
  }

  void put(std::string_view event) {
    if (any_) text_ += ",\n";
    any_ = true;
    text_ += event;
    if (text_.size() < kWrittenAtOnce) return;
    file_.write(text_);
    text_.clear();
  }

  void header() {
    std::string state, clock, peaks;
    for (const LiveBuffer& buffer : content_.state)
      state += cat(state.empty() ? "" : ",", "{\"name\":", json_quoted(buffer.name),
                   ",\"bytes\":", buffer.bytes, "}");
    for (const ClockOffset& offset : content_.clock)
      clock += cat(clock.empty() ? "" : ",", "{\"at_us\":", us(offset.at),
                   ",\"offset_us\":", static_cast<double>(offset.offset) / 1e3,
                   ",\"error_us\":", static_cast<double>(offset.error) / 1e3, "}");
    for (const ProfiledProgram& program : content_.programs)
      peaks += cat(peaks.empty() ? "" : ",", peak_of(texts_.at(program.executable)));
    text_ =
        cat("{\"displayTimeUnit\":\"ms\",\n\"distributedInfo\":{\"rank\":", content_.rank,
            ",\"world_size\":", content_.world_size, "},\n\"tessera\":{\"version\":1,\"ranks\":[",
            "{\"rank\":", content_.rank, ",\"world_size\":", content_.world_size,
            ",\"host\":", json_quoted(content_.host), ",\"run\":", json_quoted(content_.run),
            ",\"first_step\":", content_.steps[0].number, ",\"steps\":", content_.steps.size(),
            ",\"lost\":", content_.recorder->lost(),
            ",\"light\":{\"matrix_bf16_flops\":", light_.matrix_bf16,
            ",\"matrix_f32_flops\":", light_.matrix_f32, ",\"bandwidth\":", light_.bandwidth,
            "},\"clock\":[", clock, "],\n\"state\":[", state, "],\n\"peaks\":[", peaks,
            "]}]},\n\"traceEvents\":[\n");
  }

  // {"program":..., "bytes":..., "at":..., "live":[...]}
  std::string peak_of(const InstructionTexts& texts) const {
    if (!texts.plan())
      return cat("{\"program\":", json_quoted(texts.name()), ",\"bytes\":", texts.memory().arena,
                 ",\"at\":\"\",\"live\":[]}");
    const Plan& plan = *texts.plan();
    std::string live;
    for (const LiveBuffer& buffer : live_at_peak(texts.graph(), plan, kNamedAtPeak))
      live += cat(live.empty() ? "" : ",", "{\"name\":", json_quoted(buffer.name),
                  ",\"bytes\":", buffer.bytes, "}");
    std::string at;
    if (plan.peak_node >= 0 && plan.peak_node < std::ssize(texts.graph().nodes())) {
      const Node& node = texts.graph().nodes()[static_cast<size_t>(plan.peak_node)];
      at = place_text(node);
    }
    return cat("{\"program\":", json_quoted(texts.name()), ",\"bytes\":", plan.live_peak_bytes,
               ",\"at\":", json_quoted(at), ",\"live\":[", live, "]}");
  }

  void lanes() {
    auto meta = [&](const char* what, int tid, const std::string& arguments) {
      put(cat("{\"ph\":\"M\",\"pid\":", content_.rank, tid < 0 ? "" : cat(",\"tid\":", tid),
              ",\"name\":\"", what, "\",\"args\":{", arguments, "}}"));
    };
    meta("process_name", -1,
         cat("\"name\":", json_quoted(cat("rank ", content_.rank, " (", content_.host, ")"))));
    meta("process_sort_index", -1, cat("\"sort_index\":", content_.rank));
    for (Lane lane : {Lane::kCompute, Lane::kGather, Lane::kReduce, Lane::kCopy}) {
      if (lane != Lane::kCompute && !lane_is_used(lane)) continue;
      meta("thread_name", tid_of(lane), cat("\"name\":\"", name(lane), "\""));
      meta("thread_sort_index", tid_of(lane), cat("\"sort_index\":", tid_of(lane)));
    }
    std::set<Lane> streams;
    for (const RunRecorder::Work& work : content_.recorder->works()) streams.insert(work.lane);
    for (const Lane lane : streams) {
      meta("thread_name", stream_of(lane), cat("\"name\":\"stream ", name(lane), "\""));
      meta("thread_sort_index", stream_of(lane), cat("\"sort_index\":", stream_of(lane)));
    }
  }
  static int tid_of(Lane lane) { return 1 + static_cast<int>(lane); }
  // Of what a device did, kernel by kernel.
  static int stream_of(Lane lane) { return 11 + static_cast<int>(lane); }
  bool lane_is_used(Lane lane) const {
    for (const auto& [executable, texts] : texts_) {
      if (!texts.plan()) continue;
      for (const Instruction& instruction : texts.plan()->instructions)
        if (instruction.kind == InstructionKind::kLaunch && instruction.lane == lane) return true;
    }
    return false;
  }

  void slice(Lane lane, int64_t begin, int64_t end, std::string_view rest) {
    slice(tid_of(lane), begin, end, rest);
  }
  void slice(int tid, int64_t begin, int64_t end, std::string_view rest) {
    put(cat("{\"ph\":\"X\",\"pid\":", content_.rank, ",\"tid\":", tid, ",\"ts\":", us(begin),
            ",\"dur\":", us(std::max<int64_t>(0, end - begin)), rest));
  }
  void group(const std::string& name, const char* category, int64_t begin, int64_t end,
             const std::string& arguments = "") {
    slice(Lane::kCompute, begin, end,
          cat(",\"name\":", json_quoted(name), ",\"cat\":\"", category, "\",\"args\":{", arguments,
              "}}"));
  }

  void write_step(const ProfiledStep& step) {
    group(cat("ProfilerStep#", step.number), "user_annotation", step.begin, step.end,
          cat("\"step\":", step.number));
    group("data", "data", step.begin, step.computes);
    const auto& runs = content_.recorder->runs();
    for (size_t r = 0; r < runs.size(); ++r)
      if (runs[r].begin >= step.begin && runs[r].begin < step.end) write_run(r);
  }

  void write_run(size_t r) {
    InstructionTexts& texts = texts_.at(content_.recorder->runs()[r].program);
    const std::vector<int64_t> live =
        texts.plan() ? live_bytes(texts.graph(), *texts.plan()) : std::vector<int64_t>();
    int64_t end = content_.recorder->runs()[r].begin;
    // A group stands before what it holds: that is how viewers nest what begins together.
    std::vector<Slice> slices{{end, end, texts.name()}};
    std::vector<size_t> open;  // groups, by their index in slices
    std::vector<std::string> path;
    int64_t told = -1;
    each_instruction(
        r, [&](const RunRecorder::Run&, const RunRecorder::Instruction& done, int64_t begin) {
          const InstructionText& text = texts[static_cast<size_t>(done.index)];
          size_t same = 0;
          while (same < path.size() && same < text.path.size() && path[same] == text.path[same])
            ++same;
          for (; path.size() > same; path.pop_back(), open.pop_back())
            slices[open.back()].end = begin;
          for (; same < text.path.size(); ++same) {
            path.push_back(text.path[same]);
            open.push_back(slices.size());
            slices.push_back({begin, begin, text.path[same]});
          }
          slices.push_back({begin, done.end, "", &text, write_exchange(text, done)});
          if (text.launches && live[static_cast<size_t>(text.node)] != told) {
            told = live[static_cast<size_t>(text.node)];
            memory(begin, told);
            if (text.node == texts.plan()->peak_node) peak(texts, begin);
          }
          end = done.end;
        });
    write_works(r);
    for (size_t index : open) slices[index].end = end;
    slices[0].end = end;
    memory(end, 0);
    for (const Slice& s : slices) {
      if (!s.of) {
        group(s.name, "group", s.begin, s.end);
        continue;
      }
      const auto seconds = static_cast<double>(s.end - s.begin) * 1e-9;
      const double share = seconds > 0 ? s.of->light_seconds / seconds : 0;
      slice(Lane::kCompute, s.begin, s.end,
            cat(s.of->event, s.more,
                share > 0 && std::isfinite(share) ? format(",\"share_of_light\":%.4f", share) : "",
                "}}"));
    }
  }

  // Those of a run, on the streams on which they were.
  void write_works(size_t r) {
    const auto& runs = content_.recorder->runs();
    const auto& all = content_.recorder->works();
    InstructionTexts& texts = texts_.at(runs[r].program);
    const auto first = std::partition_point(
        all.begin(), all.end(), [&](const RunRecorder::Work& work) { return work.run < r; });
    for (auto work = first; work != all.end() && work->run == r; ++work)
      slice(stream_of(work->lane), work->at.begin, work->at.end,
            cat(",\"name\":", json_quoted(content_.recorder->names()[work->name]),
                ",\"cat\":\"kernel\",\"args\":{", texts[work->instruction].place,
                work->bytes > 0 ? cat(",\"bytes\":", work->bytes) : "", "}}"));
  }

  // Returns what the wait is told of it.
  std::string write_exchange(const InstructionText& text, const RunRecorder::Instruction& done) {
    if (done.exchange < 0 || text.exchange.empty()) return {};
    const TimeSpan span = content_.recorder->exchanges()[static_cast<size_t>(done.exchange)];
    const std::string sequence = cat(",\"sequence\":", sequence_[text.ranks]++);
    slice(text.lane, span.begin, span.end, cat(text.exchange, sequence, "}}"));
    return sequence;
  }

  void memory(int64_t at, int64_t live) {
    put(cat("{\"ph\":\"C\",\"pid\":", content_.rank, ",\"name\":\"memory\",\"ts\":", us(at),
            ",\"args\":{\"state\":", state_bytes_, ",\"live\":", live, "}}"));
  }
  void peak(const InstructionTexts& texts, int64_t at) {
    put(cat("{\"ph\":\"i\",\"s\":\"t\",\"pid\":", content_.rank, ",\"tid\":1,\"ts\":", us(at),
            ",\"name\":\"memory peak of ", texts.name(),
            "\",\"cat\":\"memory\",\"args\":", peak_of(texts), "}"));
  }

  const TraceContent& content_;
  SpeedOfLight light_;
  AtomicFile file_;
  std::string text_;  // not written yet
  bool any_ = false;  // event stands in the list
  std::map<const Executable*, InstructionTexts> texts_;
  int64_t state_bytes_ = 0;
  std::map<std::string, int64_t> sequence_;  // by the ranks of a group
};

}  // namespace

void write_trace(const std::filesystem::path& path, const TraceContent& content) {
  TraceWriter(path, content).write();
}

}  // namespace tessera
