#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <thread>

#include "base/file.h"
#include "base/text.h"
#include "comm/slurm_lists.h"
#include "comm/slurm_step.h"
#include "comm/slurm_token.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

Names hosts(std::string_view text) { return expand_host_list(text, "LIST"); }

// As `scontrol show hostnames` prints them; that of Slurm 22.05 takes nothing behind a bracket.
TEST(SlurmLists, HostsInTheOrderOfScontrol) {
  EXPECT_EQ(hosts("node1"), Names{"node1"});
  EXPECT_EQ(hosts("node[01-03,7],gpu-a[1-2]b"),
            (Names{"node01", "node02", "node03", "node7", "gpu-a1b", "gpu-a2b"}));
  EXPECT_EQ(hosts("a[9-011]"), (Names{"a9", "a10", "a11"}));
  EXPECT_EQ(hosts("a[08-11]"), (Names{"a08", "a09", "a10", "a11"}));
  EXPECT_EQ(hosts("a[3,1-2].cluster,10.0.0.[1-2]"),
            (Names{"a3.cluster", "a1.cluster", "a2.cluster", "10.0.0.1", "10.0.0.2"}));
  EXPECT_EQ(hosts("r[1-2]n[1-2]x"), (Names{"r1n1x", "r1n2x", "r2n1x", "r2n2x"}));
  EXPECT_EQ(hosts("[1-2]z"), (Names{"1z", "2z"}));
  EXPECT_EQ(hosts("n[1-65536]").size(), 65'536u);
}

TEST(SlurmLists, WhatIsNoListIsRefusedWithItsPlace) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c :
       {Case{"", "LIST = '', character 1: expected the name of a host"},
        Case{"a,,b", "character 3: expected the name"},
        Case{"a,", "character 3: expected the name"}, Case{"a[1", "expected ']'"},
        Case{"a]", "character 2: no host has this character"}, Case{"a[]", "expected a number"},
        Case{"a[1-]", "expected a number"}, Case{"a[1-3,]", "expected a number"},
        Case{"a[1x-3]", "expected ']'"}, Case{"a[3-1]", "a range that runs backwards"},
        Case{"-a", "no host has this character"}, Case{"a b", "no host has this character"},
        Case{"a;rm", "no host has this character"}, Case{"a[0-65536]", "more than 65536 hosts"},
        Case{"a[0-999][0-999]", "more than 65536 hosts"},
        Case{"a[0-999999999999999999]", "more than 65536 hosts"},
        Case{"a[0-9999999999999999999]", "more than 18 digits"}}) {
    expect_contains(message_of<UserError>([&] { hosts(c.text); }), c.message);
  }
  EXPECT_THROW(hosts(std::string(300, 'a')), UserError);
  EXPECT_THROW(hosts("a[1-40000],b[1-40000]"), UserError);
}

TEST(SlurmLists, TasksOfNodes) {
  auto counts = [](std::string_view text) { return expand_task_counts(text, "COUNTS"); };
  EXPECT_EQ(counts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(counts("16"), std::vector<int>{16});
  for (const char* bad : {"", "0", "2(x0)", "2(x3", "2x3", "2,,1", "2(x99999)", "a", "2(x65536),1"})
    EXPECT_THROW(counts(bad), UserError) << bad;
}

// Task 3 of two nodes with two tasks each.
const Variables kStep{{"SLURM_CLUSTER_NAME", "ci"},
                      {"SLURM_JOB_ID", "17"},
                      {"SLURM_STEP_ID", "2"},
                      {"SLURM_STEP_NUM_TASKS", "4"},
                      {"SLURM_PROCID", "3"},
                      {"SLURM_STEP_NUM_NODES", "2"},
                      {"SLURM_NODEID", "1"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                      {"SLURM_STEP_NODELIST", "node[02-03]"},
                      {"SLURM_JOB_NODELIST", "node[01-03]"}};

Environment lookup(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> const char* {
    auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
}

std::optional<SlurmStep> with(const std::string& name, const std::string& value) {
  Variables variables = kStep;
  variables[name] = value;
  return slurm_step(lookup(variables));
}

TEST(SlurmStep, WhereATaskIs) {
  SlurmStep step = slurm_step(lookup(kStep)).value();
  EXPECT_EQ(step.name(), "17.2");
  EXPECT_EQ(step.tasks, 4);
  EXPECT_EQ(step.task, 3);
  EXPECT_EQ(step.nodes, 2);
  EXPECT_EQ(step.node, 1);
  EXPECT_EQ(step.local_tasks, 2);
  EXPECT_EQ(step.local_task, 1);
  EXPECT_EQ(step.first_node, "node02");
  EXPECT_EQ(step.restarts, 0);
  EXPECT_EQ(step.first_port(), 20'000 + 17 * 16 + 2);
  EXPECT_EQ(step.identity().size(), 32u);
  EXPECT_EQ(with("SLURM_STEP_NODELIST", "")->first_node, "node01");
  SlurmStep again = with("SLURM_RESTART_COUNT", "2").value();
  EXPECT_EQ(again.restarts, 2);
  EXPECT_EQ(again.identity(), step.identity());
  EXPECT_NE(again.token_from("s"), step.token_from("s"));
  EXPECT_NE(with("SLURM_STEP_ID", "3")->identity(), step.identity());
  EXPECT_LE(with("SLURM_JOB_ID", "4294967295")->first_port() + SlurmStep::kPorts, 32'768);
}

TEST(SlurmStep, WhoIsNone) {
  EXPECT_FALSE(slurm_step(lookup({})));
  // A batch script whose job may start four tasks.
  EXPECT_FALSE(
      slurm_step(lookup({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}})));
  Variables alone{{"SLURM_JOB_ID", "1"},         {"SLURM_STEP_ID", "0"},
                  {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"},
                  {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NODEID", "0"},
                  {"SLURM_LOCALID", "0"},        {"SLURM_STEP_NODELIST", "n"}};
  EXPECT_EQ(slurm_step(lookup(alone))->tasks, 1);
  alone["SLURM_PTY_PORT"] = "4000";  // a shell, from which anything may be started
  EXPECT_FALSE(slurm_step(lookup(alone)));
}

TEST(SlurmStep, OneOfSeveralTasksNeverTakesItselfForAll) {
  for (const auto& [name, value] : kStep) {
    if (name == "SLURM_CLUSTER_NAME" || name == "SLURM_STEP_TASKS_PER_NODE" ||
        name == "SLURM_STEP_NODELIST" || name == "SLURM_JOB_NODELIST")
      continue;
    expect_contains(message_of<UsageError>([&] { with(name, ""); }),
                    cat("environment variable ", name, " is missing"));
    EXPECT_THROW(with(name, "x"), UsageError) << name;
    EXPECT_THROW(with(name, "-1"), UsageError) << name;
  }
  // The first task, too, though nothing that it has says of the step that it has more.
  Variables first = kStep;
  first.erase("SLURM_STEP_NUM_TASKS");
  first["SLURM_PROCID"] = "0";
  EXPECT_FALSE(slurm_step(lookup(first)));
  first["SLURM_NTASKS"] = "4";
  expect_contains(message_of<UsageError>([&] { slurm_step(lookup(first)); }),
                  "environment variable SLURM_STEP_NUM_TASKS is missing");
  first.erase("SLURM_PROCID");  // meant to be apart
  EXPECT_FALSE(slurm_step(lookup(first)));
  EXPECT_THROW(with("SLURM_PROCID", "4"), UsageError);
  EXPECT_THROW(with("SLURM_NODEID", "2"), UsageError);
  EXPECT_THROW(with("SLURM_LOCALID", "2"), UsageError);
  expect_contains(message_of<UsageError>([&] { with("SLURM_STEP_TASKS_PER_NODE", "2(x3)"); }),
                  "must be of 2 nodes and 4 tasks: it is '2(x3)'");
  expect_contains(message_of<UserError>([&] { with("SLURM_STEP_NODELIST", "a[1"); }),
                  "SLURM_STEP_NODELIST = 'a[1', character 4: expected ']'");
}

TEST(SlurmStep, AnUnknownNodeIsAnErrorInTime) {
  EXPECT_EQ(reach_slurm_node("localhost"), "localhost");
  expect_contains(message_of<UserError>([] { reach_slurm_node("no-such-node.invalid"); }),
                  "the job's first node, 'no-such-node.invalid', cannot be found");
}

class SlurmTokens : public testing::Test {
 protected:
  SlurmTokens() : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(directory_.path());
  }
  ~SlurmTokens() override { std::filesystem::current_path(before_); }

  static SlurmStep task(int number) { return with("SLURM_PROCID", cat(number)).value(); }
  static std::string token_of(int number, int milliseconds = 60'000) {
    return SlurmToken(task(number), lookup({}), std::chrono::milliseconds(milliseconds)).value();
  }

  ScratchDirectory directory_;

 private:
  std::filesystem::path before_;
};

TEST_F(SlurmTokens, Task0HandsOneOutInAFileOfItsOwn) {
  std::string read;
  std::thread other([&] { read = token_of(2); });
  {
    SlurmToken own(task(0), lookup({}), std::chrono::seconds(1));
    other.join();
    EXPECT_EQ(own.value(), read);
    EXPECT_EQ(read.size(), 64u);
    struct stat status {};
    ASSERT_EQ(::stat(task(0).token_file().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  EXPECT_NE(token_of(0), read);
}

TEST_F(SlurmTokens, AFileOfSomebodyElseIsRefused) {
  std::string file = directory_.write(task(0).token_file(), std::string(64, 'a')).string();
  ::chmod(file.c_str(), 0644);
  expect_contains(message_of<UserError>([] { token_of(1); }),
                  "is not a file that this user alone can read");
  ::chmod(file.c_str(), 0600);
  EXPECT_EQ(token_of(1), std::string(64, 'a'));
  std::filesystem::remove(file);
  std::filesystem::create_symlink("/etc/hostname", file);
  EXPECT_THROW(token_of(1), UserError);
}

TEST_F(SlurmTokens, WaitsNoLongerThanItsDeadline) {
  std::string message = message_of<CommError>([] { token_of(1, 200); });
  expect_contains(message, "task 1 on ");
  expect_contains(message, "do all nodes share that directory?");
  expect_contains(message, "TESSERA_JOB_TOKEN");
}

TEST_F(SlurmTokens, AGivenSecretIsOfOneStepOnly) {
  Environment given = lookup({{"TESSERA_JOB_TOKEN", "secret"}});
  auto token = [&](const SlurmStep& step) {
    return SlurmToken(step, given, std::chrono::seconds(1)).value();
  };
  EXPECT_EQ(token(task(0)), token(task(3)));
  EXPECT_NE(token(task(0)), token(with("SLURM_STEP_ID", "3").value()));
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

}  // namespace
}  // namespace tessera
