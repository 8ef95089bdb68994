// The page of a run that goes: what it is told, by whom, and that nothing of it ends the run.
#include <nlohmann/json.hpp>

#include "serve/http_server.h"
#include "tests/apps/ranks_fixture.h"
#include "tests/serve/http_get.h"

namespace tessera {
namespace {

class DashboardOfRuns : public Ranks {
 protected:
  // Port and path of the page whose address the log has.
  void read_address(const std::string& log) {
    wait_for(log, "Dashboard: http://127.0.0.1:");
    wait_for(log, "Creating Model");  // so that the whole line is there
    const std::string text = read_file(path(log));
    const size_t at = text.find("127.0.0.1:", text.find("Dashboard: ")) + 10;
    const size_t slash = text.find('/', at);
    port_ = std::stoi(text.substr(at, slash - at));
    page_ = text.substr(slash, text.find('\n', slash) - slash);
  }
  nlohmann::json state() const {
    const std::string answer = http_answer(port_, page_ + "state/0/0");
    return nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n")));
  }
  // Asks until it is so, 100 s at most.
  nlohmann::json wait_until(const std::function<bool(const nlohmann::json&)>& is_so) const {
    nlohmann::json all;
    for (const double end = monotonic_seconds() + 100; monotonic_seconds() < end;) {
      all = state();
      if (is_so(all)) return all;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << all.dump(1);
    return all;
  }

  int port_ = 0;
  std::string page_;
};

TEST_F(DashboardOfRuns, ShowsAllRanksAndEndsWithTheRun) {
  const pid_t agent_process = start(
      agent(2, job(2, {"--dashboard", "0", "--max_steps", "1000000", "--epochs", "1000000",
                       "--logging_freq", "1000", "--checkpoint_dir", "ckpt", "--validation_dataset",
                       "text.txt", "--validation_freq", "20", "--validation_batches", "1"})),
      [] {}, "run");
  read_address("run.err");
  EXPECT_EQ(http_answer(port_, "/").substr(9, 3), "403");
  expect_contains(http_answer(port_, page_), "<title>tessera</title>");
  const nlohmann::json all = wait_until([](const nlohmann::json& s) {
    return s["ranks"].size() == 2 && s["ranks"][1].contains("step") && !s["validations"].empty();
  });
  EXPECT_EQ(all["title"], "llama_v2");
  EXPECT_EQ(all["steps"], 1000000);
  EXPECT_GT(all["step"], 0);
  EXPECT_FALSE(all["points"].empty());
  EXPECT_EQ(all["ranks"][0]["rank"], 0);
  EXPECT_EQ(all["ranks"][1]["rank"], 1);
  EXPECT_NE(all["ranks"][0]["process"], all["ranks"][1]["process"]);
  EXPECT_GT(all["ranks"][1]["memory_bytes"], 1 << 20);
  EXPECT_TRUE(all["ranks"][1]["exchange_seconds"].is_number());
  EXPECT_EQ(all["memory"][0][0], "parameters");
  EXPECT_FALSE(all["events"].empty());
  ::kill(agent_process, SIGTERM);
  const ProgramResult result = finish(agent_process);
  EXPECT_EQ(result.status, 143) << result.err;
  expect_contains(result.err, "saved. Give --resume_from_checkpoint");
}

TEST_F(DashboardOfRuns, HasTheStepsOfBeforeAResume) {
  const Words words =
      train({"--checkpoint_dir", "ckpt", "--resume_from_checkpoint", "ckpt", "--metrics_file",
             "metrics", "--epochs", "1000000", "--logging_freq", "1000", "--dashboard", "0",
             "--validation_dataset", "text.txt", "--validation_batches", "1"});
  ASSERT_EQ(run(words + Words{"--max_steps", "7"}).status, 0);
  const pid_t second = start(
      words + Words{"--max_steps", "1000000"}, [] {}, "second");
  read_address("second.err");
  const nlohmann::json all =
      wait_until([](const nlohmann::json& s) { return s["points"].size() > 20; });
  EXPECT_EQ(all["points"][0][0], 1);
  EXPECT_EQ(all["points"][7][0], 8);
  EXPECT_EQ(all["validations"][0][0], 7);
  ::kill(second, SIGTERM);
  EXPECT_EQ(finish(second).status, 143);
}

// What somebody needs to know, the agent of the ranks included, is said at any level.
TEST_F(DashboardOfRuns, AddressesAndTheFirstStepAreSaidAtAnyLevel) {
  const ProgramResult result =
      run_ranks(2, job(2, {"--dashboard", "0", "--http_port", "0", "--log_level", "error"}));
  for (const char* text :
       {"Dashboard: http://127.0.0.1:", "at 127.0.0.1 port ", "First step done"}) {
    const size_t at = result.err.find(text);
    EXPECT_NE(at, std::string::npos) << text << " is missing in " << result.err;
    EXPECT_EQ(at, result.err.rfind(text)) << result.err;
  }
  EXPECT_EQ(result.err.find("Batch "), std::string::npos) << result.err;
}

TEST_F(DashboardOfRuns, APortThatIsTakenIsAWarning) {
  HttpServer taken({}, [](const HttpServer::Request&) { return HttpServer::Reply(); });
  const ProgramResult result =
      run(train({"--max_steps", "3", "--dashboard", cat(taken.port()), "--peak_tflops_per_gpu", "1",
                 "--metrics_file", "/dev/full"}));
  ASSERT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, "Address already in use; the run goes on without");
  expect_contains(result.err, "training goes on without them");
}

TEST_F(DashboardOfRuns, ARankThatIsKilledEndsTheJobAsWithoutIt) {
  const pid_t agent_process = start(
      agent(2, job(2, {"--dashboard", "0", "--max_steps", "1000000", "--epochs", "1000000",
                       "--logging_freq", "1000"})),
      [] {}, "run");
  read_address("run.err");
  const nlohmann::json all =
      wait_until([](const nlohmann::json& s) { return s["ranks"].size() == 2 && s["step"] > 0; });
  ::kill(all["ranks"][1]["process"], SIGKILL);
  const ProgramResult result = finish(agent_process);
  EXPECT_EQ(result.status, 137) << result.err;
  expect_contains(result.err, "rank 1 failed first: killed by signal 9");
}

}  // namespace
}  // namespace tessera
