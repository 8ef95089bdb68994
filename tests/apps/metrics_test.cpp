// What a run writes for people and programs to look at.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "serve/http_server.h"
#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Metrics : public ProgramTest {};

TEST_F(Metrics, GoToTensorBoardAndReports) {
  ProgramResult result = run(train({"--max_steps", "5", "--tensorboard_dir", "runs/a", "runs/b",
                                    "--report_interval", "2", "--peak_tflops_per_gpu", "1"}));
  ASSERT_EQ(result.status, 0) << result.err;
  for (const std::string directory : {"runs/a", "runs/b"}) {
    expect_contains(result.err, cat("Writing metrics for tensorboard to ", directory, "."));
    const std::set<std::string> files = names(directory);
    ASSERT_EQ(files.size(), 1u);
    const std::string events = read_file(path(cat(directory, "/", *files.begin())));
    size_t steps = 0;
    for (size_t at = 0; (at = events.find("Loss/train", at)) != std::string::npos; ++at) ++steps;
    EXPECT_EQ(steps, 5u);
    expect_contains(events, "max_steps | 5 |");
  }
  expect_contains(result.err, "Report:\nstep: 2\ntokens seen: ");
  expect_contains(result.err, "Report:\nstep: 4\ntokens seen: ");
  EXPECT_EQ(result.err.find("step: 5\n"), std::string::npos);
}

// A file of TensorBoard's says behind which step those before it do not count.
TEST_F(Metrics, AnEvaluationLeavesTheCurvesOfTheRunInTensorBoard) {
  const Words words =
      train({"--max_steps", "6", "--validation_dataset", "text.txt", "--tensorboard_dir", "runs"});
  auto restarts_at = [&](int64_t step, const Words& more) {
    const std::set<std::string> before = names("runs");
    const ProgramResult result = run(words + more);
    EXPECT_EQ(result.status, 0) << result.err;
    std::string events;
    for (const std::string& name : names("runs"))
      if (!before.contains(name)) events = read_file(path(cat("runs/", name)));
    expect_contains(events, "Loss/val");
    // Of an Event: the step, and a log of the session that says START.
    return events.find(cat("\x10", static_cast<char>(step), "\x3a\x02\x08\x01")) !=
           std::string::npos;
  };
  EXPECT_TRUE(restarts_at(1, {"--checkpoint_dir", "ckpt", "--checkpoint_freq", "2"}));
  EXPECT_TRUE(restarts_at(5, {"--resume_from_checkpoint", "ckpt/llama_v2-4steps"}));
  EXPECT_FALSE(
      restarts_at(3, {"--resume_from_checkpoint", "ckpt/llama_v2-2steps", "--eval_only", "1"}));
  EXPECT_FALSE(restarts_at(1, {"--eval_only", "1"}));
}

TEST_F(Metrics, ADirectoryThatCannotBeMadeIsAnErrorBeforeTheFirstStep) {
  write("file", "");
  ProgramResult result = run(train({"--max_steps", "5", "--tensorboard_dir", "file/runs"}));
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "cannot make 'file/runs' for TensorBoard");
  EXPECT_EQ(result.err.find("Batch 0"), std::string::npos);
}

TEST_F(Metrics, GoToWandbAndAPortThatIsTakenIsAWarning) {
  HttpServer taken({}, [](const HttpServer::Request&) { return HttpServer::Reply(); });
  ProgramResult result = run(train({"--max_steps", "3", "--use_wandb", "1", "--http_port",
                                    cat(taken.port()), "--peak_tflops_per_gpu", "1e-9"}));
  ASSERT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, cat("cannot serve at 127.0.0.1 port ", taken.port(),
                                  ": Address already in use; the run goes on without"));
  expect_contains(result.err, "they have no MFU");
  EXPECT_EQ(result.err.find("MFU: 0"), std::string::npos);
  ASSERT_EQ(names("wandb").size(), 1u);
  const std::string directory = cat("wandb/", *names("wandb").begin());
  expect_contains(result.err, cat("wandb sync ", directory));
  EXPECT_EQ(names(directory).size(), 2u);
}

TEST_F(Metrics, MemoryLinesStandAtTheirPoints) {
  ProgramResult result = run(train({"--max_steps", "7", "--enable_memory_profiling", "1",
                                    "--checkpoint_dir", "ckpt", "--async_checkpoint", "off"}));
  ASSERT_EQ(result.status, 0) << result.err;
  std::vector<std::string> expected{"0 Before model creation", "0 Before FSDP wrapper",
                                    "0 After FSDP wrapper"};
  for (int step = 0; step < 5; ++step) {
    for (const char* point :
         {"Before train step", "After forward", "After train step", "After opt step"})
      expected.push_back(cat(step, " ", point));
  }
  expected.insert(expected.end(), {"7 Before ckpt (sharded)", "7 After ckpt (sharded)"});
  std::vector<std::string> points;
  double reserved = 0;
  for (std::string_view line : split(trim(result.out), '\n')) {
    if (!line.starts_with("[GPU MEMORY]@")) continue;
    points.push_back(
        cat(line.substr(16, 1), " ",
            trim(line.substr(line.rfind('[') + 1, line.rfind(']') - line.rfind('[') - 1))));
    double allocated = 0, peak = 0;
    ASSERT_EQ(std::sscanf(std::string(line.substr(line.find("max_cache) = (") + 14)).c_str(),
                          "%lf, %lf, %lf", &allocated, &peak, &reserved),
              3)
        << line;
    EXPECT_LE(allocated, peak) << line;
    EXPECT_LE(peak, reserved) << line;
  }
  EXPECT_EQ(points, expected);
  expect_contains(result.out, "[CPU MEMORY]@0004 (torch, rank, device) = (");
}

// The scalar of TensorBoard's with this tag.
double value_behind(const std::string& events, const std::string& tag, size_t from = 0) {
  const size_t at = events.find(tag, from) + tag.size();
  EXPECT_EQ(events[at], '\x15') << tag;  // simple_value
  float value = 0;
  std::memcpy(&value, events.data() + at + 1, sizeof value);
  return static_cast<double>(value);
}

// Their squares add up to those of the norm that the update has found, on one rank and on several.
TEST_F(Metrics, NormsOfLayersAddUp) {
  std::map<std::string, double> of_one_rank;
  struct Case {
    Words start, more;
    double bound = 1e-4;  // of the difference to the first
  };
  for (const auto& [start, more, bound] :
       {Case{}, Case{{"run", "--nproc_per_node", "2"}, {}}, Case{{}, {"--use_fp16", "1"}, 0.05}}) {
    std::filesystem::remove_all(path("runs"));
    const Words job = train({"--max_steps", "2", "--tensorboard_dir", "runs", "--histogram_freq",
                             "2", "--bf16", "0", "--gradient_accumulation_steps", "2", "--threads",
                             "1", "--train_batch_size", start.empty() ? "4" : "2"});
    ProgramResult result = run(start + job + more);
    ASSERT_EQ(result.status, 0) << result.err;
    const std::string events = read_file(path(cat("runs/", *names("runs").begin())));
    const double norm = value_behind(events, "Norms/grad_norm", events.rfind("Loss/train"));
    std::map<std::string, double> norms;
    double squares = 0;
    for (const char* layer : {"layers.0", "layers.1"}) {
      for (const char* of : {"Norms/weights/", "Norms/gradients/"})
        norms[cat(of, layer)] = value_behind(events, cat(of, layer));
    }
    for (size_t at = 0; (at = events.find("Norms/gradients/", at)) != std::string::npos; ++at)
      squares +=
          std::pow(value_behind(events, events.substr(at, events.find('\x15', at) - at), at), 2);
    EXPECT_NEAR(std::sqrt(squares), norm, 1e-5 * norm);
    if (of_one_rank.empty()) of_one_rank = norms;
    for (const auto& [tag, value] : norms)
      EXPECT_NEAR(value, of_one_rank[tag], bound * value) << tag;
    expect_contains(events, "Gradients/model.layers.0.");
    expect_contains(events, "Weights/");
  }
}

TEST_F(Metrics, TheNormOfALayerIsNoNumberWhereAGradientIsNone) {
  for (const Words& start : {Words{}, Words{"run", "--nproc_per_node", "2"}}) {
    std::filesystem::remove_all(path("runs"));
    const ProgramResult result =
        run(start + train({"--max_steps", "1", "--tensorboard_dir", "runs", "--histogram_freq", "1",
                           "--inject", "nan@step=0"}));
    ASSERT_EQ(result.status, 0) << result.err;
    const std::string events = read_file(path(cat("runs/", *names("runs").begin())));
    EXPECT_TRUE(std::isnan(value_behind(events, "Norms/grad_norm")));
    for (const char* layer : {"embed", "layers.0", "layers.1", "head"}) {
      const bool hit = std::string_view(layer) == "head";
      EXPECT_EQ(std::isnan(value_behind(events, cat("Norms/gradients/", layer))), hit) << layer;
      EXPECT_FALSE(std::isnan(value_behind(events, cat("Norms/weights/", layer)))) << layer;
    }
  }
}

TEST_F(Metrics, ThePlanHasAChartOfItsMemory) {
  ProgramResult result = run({"plan", "--model_name", "gpt2", "--memory_chart", "chart.html"});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string page = read_file(path("chart.html"));
  expect_contains(page, "<title>Memory of gpt2</title>");
  const size_t begin = page.find("const DATA = ") + 13;
  const auto data =
      nlohmann::json::parse(page.substr(begin, page.find(";</script>", begin) - begin));
  ASSERT_EQ(data["programs"].size(), 4u);
  for (const auto& program : data["programs"]) {
    const int64_t nodes = program["nodes"], arena = program["arena"];
    std::vector<int64_t> live(static_cast<size_t>(nodes) + 1);
    for (const auto& s : program["storages"]) {
      const int64_t first = s[0], last = s[1], offset = s[2], bytes = s[3];
      EXPECT_LE(offset + bytes, arena);
      EXPECT_LT(s[7].get<size_t>(), data["texts"].size());
      for (int64_t node = first; node <= last; ++node)
        live[static_cast<size_t>(node)] += (bytes + 63) / 64 * 64;
    }
    EXPECT_EQ(live, program["live"].get<std::vector<int64_t>>());
    EXPECT_EQ(*std::ranges::max_element(live), program["peak"].get<int64_t>());
    EXPECT_EQ(program["ops"].size(), static_cast<size_t>(nodes));
  }
  expect_contains(page, "attention in layers.0.attn");
}

TEST_F(Metrics, ArePlotted) {
  for (const char* seed : {"1", "2"}) {
    ProgramResult result = run(train({"--max_steps", "9", "--seed", seed, "--metrics_file",
                                      cat("run", seed), "--run_validation", "0"}));
    ASSERT_EQ(result.status, 0) << result.err;
  }
  ProgramResult result = run({"plot", "run1", "run2", "--smooth", "0.5"});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.out, "loss\n");
  expect_contains(result.out, "── run1: loss\n");
  expect_contains(result.out, "╌╌ run2: loss\n");
  result = run({"plot", "run1", "--metrics", "loss", "tokens_per_second", "--plot_file", "a.html"});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string page = read_file(path("a.html"));
  expect_contains(page, "<title>tokens_per_second</title>");
  expect_contains(page, "</svg>");
  EXPECT_EQ(run({"plot", "run1", "--plot_file", "a.svg"}).status, 0);
  const std::string svg = read_file(path("a.svg"));
  EXPECT_TRUE(svg.starts_with("<svg "));
  for (const char* key : {"loss", "learning_rate", "gradient_norm", "tokens_per_second"})
    expect_contains(svg, cat("<title>", key, "</title>"));
  EXPECT_EQ(run({"plot", "run1", "--plot_file", "a.png"}).status, 0);
  EXPECT_TRUE(read_file(path("a.png")).starts_with("\x89PNG"));

  auto refused = [&](const Words& words, int status, const std::string& why) {
    ProgramResult refusal = run(words);
    EXPECT_EQ(refusal.status, status);
    expect_contains(refusal.message(), why);
  };
  refused({"plot"}, 2, "plot takes files of --metrics_file");
  refused({"plot", "run1", "--plot_file", "a.gif"}, 2, "is to end in .svg, .png or .html");
  refused({"plot", "run1", "--metrics", "los"}, 1,
          "--metrics los: 'run1' has none; it has batch, ");
  refused({"plot", "text.txt"}, 1, "'text.txt', line 1 is not one that --metrics_file wrote");
  refused({"plot", "none"}, 1, "none");
  write("empty", "");
  refused({"plot", "empty"}, 1, "'empty' has no line yet");
}

}  // namespace
}  // namespace tessera
