#include "comm/job.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/text.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

using Variables = std::map<std::string, std::string>;

const Variables kJob{{"RANK", "5"},
                     {"WORLD_SIZE", "8"},
                     {"LOCAL_RANK", "1"},
                     {"LOCAL_WORLD_SIZE", "4"},
                     {"MASTER_ADDR", "node-0.invalid"},
                     {"MASTER_PORT", "29500"},
                     {"TESSERA_JOB_TOKEN", "secret"}};

// job_member_from_environment() with these variables and no others of its kind.
std::optional<JobMember> read(const Variables& variables) {
  for (const char* name : {"RANK",
                           "WORLD_SIZE",
                           "LOCAL_RANK",
                           "LOCAL_WORLD_SIZE",
                           "MASTER_ADDR",
                           "MASTER_PORT",
                           "TESSERA_JOB_TOKEN",
                           "TESSERA_HOST_ID",
                           "TESSERA_ATTEMPT",
                           "TESSERA_AGENT_STORE",
                           "TESSERA_INTERFACE",
                           "GLOO_SOCKET_IFNAME",
                           "OMPI_COMM_WORLD_SIZE",
                           "PMI_SIZE",
                           "TORCHELASTIC_RUN_ID",
                           "TORCHELASTIC_USE_AGENT_STORE",
                           "TORCHELASTIC_RESTART_COUNT",
                           "SLURM_NTASKS",
                           "SLURM_PROCID",
                           "SLURM_STEP_NUM_TASKS",
                           "SLURM_JOB_ID",
                           "SLURM_STEP_ID",
                           "SLURM_STEP_NUM_NODES",
                           "SLURM_NODEID",
                           "SLURM_LOCALID",
                           "SLURM_STEP_NODELIST",
                           "SLURM_RESTART_COUNT",
                           "SLURM_JOB_NUM_NODES"}) {
    auto at = variables.find(name);
    if (at == variables.end()) {
      ::unsetenv(name);
    } else {
      ::setenv(name, at->second.c_str(), 1);
    }
  }
  return job_member_from_environment();
}

Variables changed(const std::string& name, const std::string& value) {
  Variables variables = kJob;
  variables[name] = value;
  return variables;
}

std::string usage_error(const Variables& variables) {
  return message_of<UsageError>([&] { read(variables); });
}

TEST(JobMember, AProcessOnItsOwnHasNone) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"LOCAL_RANK", "0"}, {"MASTER_PORT", "nonsense"}}));
}

// Task 1 of two, one a node.
const Variables kTask{{"SLURM_JOB_ID", "17"},        {"SLURM_STEP_ID", "0"},
                      {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"},
                      {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_NODEID", "1"},
                      {"SLURM_LOCALID", "0"},        {"SLURM_STEP_NODELIST", "node[1-2]"},
                      {"SLURM_RESTART_COUNT", "3"}};

TEST(JobMember, ATaskOfSrunIsARankOfItsStep) {
  JobMember job = read(kTask).value();
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.world_size, 2);
  EXPECT_EQ(job.local_rank, 0);
  EXPECT_EQ(job.local_world_size, 1);
  EXPECT_EQ(job.master_address, "node1");
  EXPECT_EQ(job.master_port, 20'000 + 17 * 16);
  EXPECT_EQ(job.master_ports, 16);
  EXPECT_EQ(job.attempt, 3);
  EXPECT_EQ(job.id.size(), 32u);
  EXPECT_TRUE(job.slurm);
  Variables elsewhere = kTask;
  elsewhere.insert({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}});
  job = read(elsewhere).value();
  EXPECT_EQ(job.master_address, "10.0.0.1");
  EXPECT_EQ(job.master_port, 1234);
  EXPECT_EQ(job.master_ports, 1);
  Variables one_node = kTask;
  one_node["SLURM_STEP_NUM_NODES"] = "1";
  one_node["SLURM_NODEID"] = "0";
  one_node["SLURM_LOCALID"] = "1";
  EXPECT_EQ(read(one_node)->master_address, "127.0.0.1");
}

TEST(JobMember, OneOfSeveralTasksIsNoJobOfItsOwn) {
  expect_contains(
      usage_error({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}),
      "one of several tasks of srun, but environment variable SLURM_JOB_ID is missing");
  EXPECT_THROW(read({{"SLURM_PROCID", "2"}}), UsageError);
  read(kTask);
  expect_contains(message_of<UsageError>([] { require_no_other_task(); }),
                  "as task 1 of 2, and each task would do the whole job");
  // Ranks of an agent, or of another launcher.
  Variables rank = kJob;
  rank.insert({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(read(rank).value().rank, 5);
  // A batch script whose job may start four tasks, an interactive step of such a job, one task.
  EXPECT_FALSE(read({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}));
  EXPECT_FALSE(read({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
  EXPECT_FALSE(read({{"SLURM_PROCID", "what"}, {"SLURM_STEP_NUM_TASKS", ""}}));
}

TEST(JobMember, OneOfSeveralProcessesOfMpirunIsNoJobOfItsOwn) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    EXPECT_FALSE(read({{name, "2"}}));
    const std::string message = message_of<UsageError>([] { require_no_other_task(); });
    expect_contains(message, cat("as one of 2 (", name, "), and each would do the whole job"));
    expect_contains(message, "mpirun --npernode 1 tessera run");
    EXPECT_FALSE(read({{name, "1"}}));
    require_no_other_task();
  }
}

TEST(JobMember, WhatABatchScriptLeavesIdleIsSaid) {
  read({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NUM_NODES", "4"}, {"SLURM_NTASKS", "8"}});
  EXPECT_EQ(idle_part_of_slurm_job(), "4 nodes");
  read({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_NTASKS", "8"}});
  EXPECT_EQ(idle_part_of_slurm_job(), "8 tasks");
  read({{"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_NUM_NODES", "4"}});
  EXPECT_EQ(idle_part_of_slurm_job(), "");
  read({});
  EXPECT_EQ(idle_part_of_slurm_job(), "");
}

TEST(JobMember, ReadsTheVariablesOfTorchrun) {
  JobMember job = read(kJob).value();
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.world_size, 8);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_world_size, 4);
  EXPECT_EQ(job.master_address, "node-0.invalid");
  EXPECT_EQ(job.master_ports, 1);
  EXPECT_EQ(job.master_port, 29500);
  EXPECT_EQ(job.attempt, 0);
  EXPECT_FALSE(job.agent_store);
  EXPECT_EQ(job.interface, "");
  EXPECT_FALSE(job.host_id.empty());
  EXPECT_EQ(job.host_id, read(kJob)->host_id);
}

TEST(JobMember, ReadsItsOwnVariables) {
  Variables variables = kJob;
  variables.merge(Variables{{"TESSERA_HOST_ID", "h1"},
                            {"TESSERA_ATTEMPT", "3"},
                            {"TESSERA_AGENT_STORE", "1"},
                            {"TESSERA_INTERFACE", "eth0"}});
  JobMember job = read(variables).value();
  EXPECT_EQ(job.token, "secret");
  EXPECT_EQ(job.host_id, "h1");
  EXPECT_EQ(job.attempt, 3);
  EXPECT_TRUE(job.agent_store);
  EXPECT_EQ(job.interface, "eth0");
}

TEST(JobMember, TakesGloosInterfaceBetweenHosts) {
  Variables variables = changed("GLOO_SOCKET_IFNAME", "eth0,eth1");
  EXPECT_EQ(read(variables)->interface, "eth0");
  variables["TESSERA_INTERFACE"] = "ib0";
  EXPECT_EQ(read(variables)->interface, "ib0");
  variables["TESSERA_INTERFACE"] = "";
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["TESSERA_JOB_TOKEN"] = "";
  EXPECT_EQ(read(variables)->interface, "");
}

// Anybody who reaches the store could join: on one host that is this host's business.
TEST(JobMember, WithoutATokenTheJobIsThisHostsOwn) {
  Variables variables = changed("TESSERA_JOB_TOKEN", "");
  expect_contains(usage_error(variables),
                  "environment variable TESSERA_JOB_TOKEN is missing: without it any host that "
                  "reaches node-0.invalid:29500 could join the job");
  expect_contains(usage_error(variables), "export TESSERA_JOB_TOKEN=$(openssl rand -hex 32)");
  variables["MASTER_ADDR"] = "0.0.0.0";
  expect_contains(usage_error(variables), "TESSERA_JOB_TOKEN is missing");
  for (const char* own : {"127.0.0.1", "localhost"}) {
    variables["MASTER_ADDR"] = own;
    EXPECT_EQ(read(variables)->token, "");
  }
  variables["TESSERA_INTERFACE"] = "eth0";
  expect_contains(usage_error(variables), "TESSERA_JOB_TOKEN is missing");
}

// MASTER_PORT is its agent's.
TEST(JobMember, UnderTorchrunTheStoreIsBesideThatOfItsAgent) {
  Variables variables = kJob;
  variables.merge(Variables{{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"},
                            {"TORCHELASTIC_RUN_ID", "17"}});
  JobMember job = read(variables).value();
  EXPECT_EQ(job.master_port, 29501);
  EXPECT_EQ(job.master_ports, 16);
  EXPECT_EQ(job.attempt, 2);
  variables["TORCHELASTIC_RUN_ID"] = "18";
  EXPECT_NE(read(variables)->token, job.token);  // jobs side by side may try the same ports
  variables["MASTER_PORT"] = "65535";
  EXPECT_EQ(read(variables)->master_port + 15, 65535);
  variables["TESSERA_AGENT_STORE"] = "1";  // `tessera run` under torchrun
  EXPECT_EQ(read(variables)->master_ports, 1);
  variables["TESSERA_AGENT_STORE"] = "0";
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_EQ(read(variables)->master_ports, 1);
  EXPECT_EQ(read(variables)->token, "secret");
}

TEST(JobMember, OneRankNeedsNoAddress) {
  JobMember job = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).value();
  EXPECT_EQ(job.world_size, 1);
  EXPECT_EQ(job.master_address, "127.0.0.1");
}

TEST(JobMember, WithoutALocalWorldSizeItIsTheSmallestPossible) {
  EXPECT_EQ(read(changed("LOCAL_WORLD_SIZE", ""))->local_world_size, 2);
}

TEST(JobMember, NamesWhatIsMissing) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    std::string message = usage_error(changed(name, ""));
    EXPECT_TRUE(message.starts_with(cat("environment variable ", name, " is missing"))) << message;
  }
}

TEST(JobMember, NamesWhatIsOutOfRange) {
  struct Case {
    const char *name, *value, *range;
  };
  for (const Case& c : {Case{"WORLD_SIZE", "0", "1 to 1048576"},
                        {"WORLD_SIZE", "eight", "1 to 1048576"},
                        Case{"WORLD_SIZE", "99999999999999999999", "1 to 1048576"},
                        Case{"RANK", "8", "0 to 7"},
                        Case{"RANK", "-1", "0 to 7"},
                        Case{"RANK", "1.5", "0 to 7"},
                        Case{"RANK", " 1", "0 to 7"},
                        Case{"LOCAL_RANK", "4", "0 to 3"},
                        Case{"LOCAL_WORLD_SIZE", "9", "1 to 8"},
                        Case{"LOCAL_WORLD_SIZE", "0", "1 to 8"},
                        Case{"MASTER_PORT", "0", "1 to 65535"},
                        Case{"MASTER_PORT", "65536", "1 to 65535"},
                        Case{"TESSERA_ATTEMPT", "-1", "0 to 1000000000"},
                        Case{"TESSERA_AGENT_STORE", "yes", "0 to 1"}}) {
    EXPECT_EQ(usage_error(changed(c.name, c.value)),
              cat("environment variable ", c.name, " must be a number from ", c.range, ": it is '",
                  c.value, "'"));
  }
}

}  // namespace
}  // namespace tessera
