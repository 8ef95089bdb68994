#include "observe/status_server.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/observe/sample_reports.h"
#include "tests/serve/http_get.h"

namespace tessera {
namespace {

// Every line is a comment of two kinds or `name{labels} number`, and a name has its comments once.
TEST(PrometheusText, IsInTheFormat) {
  RunStatus status;
  status.rank = 3;
  status.model = "a\"b\\c";
  status.step = sample_report();
  status.step->loss = std::numeric_limits<double>::quiet_NaN();
  status.step->gradient_norm = std::numeric_limits<double>::infinity();
  status.validation = ValidationReport{12, 2, 26624, 2.5, 12.2};
  status.slowest = StragglerReport{99, 100, 5, "b", "data", 1.5, 0.5, true};
  const std::string text = prometheus_text(status);
  std::string name;
  for (std::string_view line : split(trim(text), '\n')) {
    if (line.starts_with("# HELP ")) {
      name = line.substr(7, line.find(' ', 7) - 7);
    } else if (line.starts_with("# TYPE ")) {
      EXPECT_TRUE(line == cat("# TYPE ", name, " gauge") ||
                  line == cat("# TYPE ", name, " counter"))
          << line;
      EXPECT_EQ(line.ends_with("counter"), name.ends_with("_total")) << line;
    } else {
      EXPECT_TRUE(line.starts_with(cat(name, "{rank=\"3\""))) << line;
    }
  }
  expect_contains(text, "\ntessera_run_info{rank=\"3\",model=\"a\\\"b\\\\c\"} 1\n");
  expect_contains(text, "\ntessera_loss{rank=\"3\"} NaN\n");
  expect_contains(text, "\ntessera_gradient_norm{rank=\"3\"} +Inf\n");
  expect_contains(text, "\ntessera_steps_total{rank=\"3\"} 13\n");
  expect_contains(text, "\ntessera_tokens_per_second{rank=\"3\"} 819.2\n");
  expect_contains(text, "\ntessera_validation_loss{rank=\"3\"} 2.5\n");
  expect_contains(text, "\ntessera_slowest_rank{rank=\"3\",phase=\"data\",host=\"b\"} 5\n");
  expect_contains(text, "\ntessera_slowest_rank_seconds{rank=\"3\"} 1.5\n");
  expect_contains(text, "\ntessera_other_ranks_seconds{rank=\"3\"} 0.5\n");
  expect_contains(text, "\ntessera_straggler{rank=\"3\"} 1\n");
  EXPECT_EQ(text.find("mfu"), std::string::npos) << "no peak is known";
}

TEST(StatusServer, IsReadyWhileStepsAreDone) {
  StatusServer server({}, 0, "llama_v2");
  auto status = [&](const char* path) { return http_answer(server.port(), path).substr(9, 3); };
  EXPECT_EQ(status("/healthz"), "200");
  EXPECT_EQ(status("/readyz"), "503");
  EXPECT_EQ(status("/metrics"), "200");
  server.step(sample_report());
  EXPECT_EQ(status("/readyz"), "200");
  StepReport bad = sample_report();
  bad.ok = false;
  server.step(bad);
  const std::string metrics = http_answer(server.port(), "/metrics");
  expect_contains(metrics, "Content-Type: text/plain; version=0.0.4");
  expect_contains(metrics, "tessera_skipped_updates_total{rank=\"0\"} 1\n");
  expect_contains(metrics, "left out: not finite, or loss spikes.\n");
  server.end({});
  EXPECT_EQ(status("/readyz"), "503");
  EXPECT_EQ(status("/healthz"), "200");
  EXPECT_EQ(status("/"), "404");
}

TEST(StatusServer, ATakenPortIsAWarning) {
  StatusServer first({}, 0, "gpt2");
  testing::internal::CaptureStderr();
  StatusServer second({.port = first.port()}, 0, "gpt2");
  second.step(sample_report());
  second.end({});
  EXPECT_EQ(second.port(), 0);
  expect_contains(testing::internal::GetCapturedStderr(),
                  "Address already in use; the run goes on without");
}

}  // namespace
}  // namespace tessera
