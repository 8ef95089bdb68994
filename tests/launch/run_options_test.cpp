#include "launch/run_options.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "base/thread_pool.h"
#include "launch/job_end.h"
#include "launch/job_token.h"
#include "launch/node_group.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

RunEnvironment lookup(const Variables& variables) {
  return [&variables](const char* name) {
    auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
}

RunOptions parse(const Words& words, const Variables& variables = {}) {
  return parse_run_options(words, lookup(variables));
}

std::string usage_error(const Words& words) {
  return message_of<UsageError>([&] { parse(words); });
}

TEST(RunOptions, TheLaunchLinesOfTheReferenceScripts) {
  // Slurm, c10d at the head node without a port.
  RunOptions slurm =
      parse({"--nproc_per_node=8", "--nnodes=4", "--rdzv_id=1234", "--rdzv_backend=c10d",
             "--rdzv_endpoint=head-node", "train", "--max_context_width=4096", "--nnodes", "x"});
  EXPECT_EQ(slurm.nnodes, 4);
  EXPECT_EQ(slurm.nproc_per_node, 8);
  EXPECT_EQ(to_string(*slurm.rdzv_endpoint), "head-node:29400");
  EXPECT_EQ(slurm.rdzv_id, "1234");
  EXPECT_EQ(slurm.command, (Words{"train", "--max_context_width=4096", "--nnodes", "x"}));
  EXPECT_FALSE(slurm.node_rank);

  // One host, c10d on any port.
  RunOptions local = parse({"--nproc-per-node", "8", "--nnode", "1", "--rdzv-backend", "c10d",
                            "--rdzv-endpoint", "localhost:0", "--", "train"});
  EXPECT_EQ(to_string(*local.rdzv_endpoint), "localhost:0");
  EXPECT_EQ(local.command, Words{"train"});

  // Static.
  RunOptions fixed = parse({"--nnodes=2", "--node_rank=1", "--master_addr=node-0",
                            "--master_port=12345", "--no-python", "./program"});
  EXPECT_EQ(fixed.rdzv_backend, RendezvousBackend::kStatic);
  EXPECT_EQ(to_string(*fixed.rdzv_endpoint), "node-0:12345");
  EXPECT_EQ(
      to_string(*parse({"--nnodes=2", "--node_rank=0", "--master_addr=h", "x"}).rdzv_endpoint),
      "h:29500");

  RunOptions alone = parse({"--standalone", "--nproc_per_node=auto", "--max_restarts", "100",
                            "--start_method=spawn", "--role", "trainer", "train"});
  EXPECT_FALSE(alone.rdzv_endpoint);
  EXPECT_EQ(alone.nproc_per_node, available_cores());
  EXPECT_EQ(alone.max_restarts, 100);
  EXPECT_EQ(parse({"--nnodes=3:3", "--rdzv_endpoint=h:1", "x"}).nnodes, 3);
}

TEST(RunOptions, VariablesOfKubernetesOperators) {
  RunOptions options =
      parse({"--nproc_per_node=4", "train"}, {{"PET_NNODES", "2"},
                                              {"PET_NPROC_PER_NODE", "8"},
                                              {"PET_RDZV_ENDPOINT", "worker-0:23456"},
                                              {"PET_RDZV_BACKEND", "c10d"},
                                              {"PET_MAX_RESTARTS", "3"}});
  EXPECT_EQ(options.nnodes, 2);
  EXPECT_EQ(options.nproc_per_node, 4);  // the command line wins
  EXPECT_EQ(to_string(*options.rdzv_endpoint), "worker-0:23456");
  EXPECT_EQ(options.max_restarts, 3);
  RunOptions trainer = parse({"train"}, {{"PET_NNODES", "2"},
                                         {"PET_NODE_RANK", "1"},
                                         {"PET_MASTER_ADDR", "node-0-0.job"},
                                         {"PET_MASTER_PORT", "29500"}});
  EXPECT_EQ(trainer.rdzv_backend, RendezvousBackend::kStatic);
  EXPECT_EQ(trainer.node_rank, 1);
}

// As for torchrun, whoever gave them.
TEST(RunOptions, AnEndpointIsBeforeAMasterAddressWhichIsSaid) {
  const Words master{"--nnodes=2", "--node_rank=1", "--master_addr=node-0", "x"};
  const Variables endpoint{{"PET_RDZV_ENDPOINT", "worker-0:23456"}};
  const RunOptions options = parse(master, endpoint);
  EXPECT_EQ(to_string(*options.rdzv_endpoint), "worker-0:23456");
  ASSERT_EQ(options.warnings.size(), 1u);
  expect_contains(options.warnings[0],
                  "--master_addr node-0 has no effect: nodes meet at worker-0, which environment "
                  "variable PET_RDZV_ENDPOINT names");
  expect_contains(
      parse({"--rdzv_endpoint=h:1", "--nnodes=2", "--node_rank=1", "--master_addr=node-0", "x"})
          .warnings.at(0),
      "nodes meet at h, which --rdzv_endpoint names");
  EXPECT_TRUE(parse(master, {}).warnings.empty());
}

// What the training operator gives the second of two pods of a PyTorchJob without elastic policy.
const Variables kPod{{"PYTHONUNBUFFERED", "1"},
                     {"MASTER_ADDR", "llama-master-0"},
                     {"PET_MASTER_ADDR", "llama-master-0"},
                     {"MASTER_PORT", "23456"},
                     {"PET_MASTER_PORT", "23456"},
                     {"WORLD_SIZE", "2"},
                     {"RANK", "1"},
                     {"PET_NODE_RANK", "1"},
                     {"PET_NNODES", "2"}};

Variables changed(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

TEST(RunOptions, PodsOfAPyTorchJob) {
  auto expect = [](const Variables& variables, int ranks) {
    RunOptions o = parse({"train"}, variables);
    EXPECT_EQ(o.nnodes, 2);
    EXPECT_EQ(o.node_rank, 1);
    EXPECT_EQ(o.nproc_per_node, ranks);
    EXPECT_EQ(o.rdzv_backend, RendezvousBackend::kStatic);
    EXPECT_EQ(to_string(*o.rdzv_endpoint), "llama-master-0:23456");
  };
  expect(kPod, 1);
  // nprocPerNode: a number, with which WORLD_SIZE counts processes, and a word, with which not.
  expect(changed(changed(kPod, "PET_NPROC_PER_NODE", "8"), "WORLD_SIZE", "16"), 8);
  expect(changed(kPod, "PET_NPROC_PER_NODE", "auto"), available_cores());
  // Operators of before PET_ variables.
  Variables old = kPod;
  for (const char* name : {"PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NODE_RANK", "PET_NNODES"})
    old.erase(name);
  expect(old, 1);
  // With an elastic policy: no master, and the range of pods.
  Variables elastic{{"PYTHONUNBUFFERED", "1"},      {"PET_RDZV_ENDPOINT", "llama-worker-0:23456"},
                    {"PET_RDZV_BACKEND", "c10d"},   {"PET_NNODES", "2:2"},
                    {"PET_MAX_RESTARTS", "100"},    {"PET_RDZV_ID", "llama"},
                    {"PET_RDZV_CONF", "timeout=60"}};
  RunOptions o = parse({"train"}, elastic);
  EXPECT_EQ(o.nnodes, 2);
  EXPECT_FALSE(o.node_rank);
  EXPECT_EQ(o.max_restarts, 100);
  EXPECT_EQ(o.join_timeout, 60);
  EXPECT_FALSE(o.has_rounds());
  o = parse({"train"}, changed(elastic, "PET_NNODES", "1:64"));
  EXPECT_EQ(o.min_nodes, 1);
  EXPECT_EQ(o.nnodes, 64);
  EXPECT_TRUE(o.is_elastic());
  EXPECT_EQ(o.rdzv_backend, RendezvousBackend::kC10d);
  // Of the manifests that bring an etcd of their own.
  elastic["PET_RDZV_BACKEND"] = "etcd";
  elastic["PET_RDZV_ENDPOINT"] = "etcd:2379";
  elastic["PET_NNODES"] = "1:64";
  o = parse({"train"}, elastic);
  EXPECT_EQ(o.rdzv_backend, RendezvousBackend::kEtcd);
  EXPECT_EQ(to_string(*o.rdzv_endpoint), "etcd:2379");
  EXPECT_EQ(o.rdzv_id, "llama");
}

TEST(RunOptions, PodsOfATrainJob) {
  Variables pod{{"PET_NNODES", "4"},
                {"PET_NPROC_PER_NODE", "auto"},
                {"PET_NODE_RANK", "3"},
                {"PET_MASTER_ADDR", "llama-node-0-0.llama"},
                {"PET_MASTER_PORT", "29500"}};
  RunOptions o = parse({"train"}, pod);
  EXPECT_EQ(o.nnodes, 4);
  EXPECT_EQ(o.node_rank, 3);
  EXPECT_EQ(to_string(*o.rdzv_endpoint), "llama-node-0-0.llama:29500");
}

TEST(RunOptions, AsManyWorkersAsThereAreGpus) {
  ::setenv("CUDA_VISIBLE_DEVICES", "2,3,GPU-8f1d", 1);
  for (const char* word : {"gpu", "auto", "cuda"})
    EXPECT_EQ(parse({cat("--nproc_per_node=", word), "x"}).nproc_per_node, 3);
  EXPECT_EQ(parse({"x"}, {{"PET_NPROC_PER_NODE", "gpu"}}).nproc_per_node, 3);
  EXPECT_EQ(parse({"--nproc_per_node=cpu", "x"}).nproc_per_node, available_cores());
  for (const char* none : {"", "-1"}) {
    ::setenv("CUDA_VISIBLE_DEVICES", none, 1);
    EXPECT_EQ(parse({"--nproc_per_node=auto", "x"}).nproc_per_node, available_cores());
    expect_contains(message_of<UsageError>([&] {
                      parse({"--nproc-per-node=gpu", "x"});
                    }),
                    "--nproc-per-node=gpu: this host shows no GPU");
  }
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(RunOptions, PodsThatContradictThemselves) {
  struct Case {
    const char *name, *value, *message;
  };
  for (const Case& c :
       {Case{"PET_NODE_RANK", "0", "PET_NODE_RANK=0, but RANK=1, which counts pods"},
        Case{"PET_MASTER_ADDR", "other", "PET_MASTER_ADDR=other, but MASTER_ADDR=llama-master-0"},
        Case{"WORLD_SIZE", "3", "PET_NNODES=2, but WORLD_SIZE=3"},
        Case{"PET_NPROC_PER_NODE", "4", "PET_NNODES=2, PET_NPROC_PER_NODE=4, but WORLD_SIZE=2"},
        Case{"WORLD_SIZE", "x", "WORLD_SIZE must be a number from 1 on: it is 'x'"},
        Case{"RANK", "-1", "RANK must be a number from 0 on"}}) {
    expect_contains(
        message_of<UsageError>([&] { parse({"train"}, changed(kPod, c.name, c.value)); }),
        c.message);
  }
  // Without PET_NNODES there is no number of pods to compare, and all else still is.
  Variables fewer = kPod;
  fewer.erase("PET_NNODES");
  expect_contains(
      message_of<UsageError>([&] { parse({"train"}, changed(fewer, "PET_NODE_RANK", "0")); }),
      "PET_NODE_RANK=0, but RANK=1");
  expect_contains(
      message_of<UsageError>([&] { parse({"train"}, changed(fewer, "PET_MASTER_ADDR", "other")); }),
      "PET_MASTER_ADDR=other, but MASTER_ADDR=llama-master-0");
  fewer.erase("PET_MASTER_ADDR");
  EXPECT_EQ(parse({"train"}, changed(fewer, "PET_NPROC_PER_NODE", "4")).nnodes, 2);
  // Workers of another agent: its variables are not those of a pod. And the command line wins.
  EXPECT_EQ(parse({"train"}, {{"RANK", "1"},
                              {"LOCAL_RANK", "1"},
                              {"WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "h"},
                              {"MASTER_PORT", "1"}})
                .nnodes,
            1);
  EXPECT_EQ(parse({"--standalone", "train"},
                  {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}})
                .nnodes,
            1);
}

// Agent of the second of two nodes.
const Variables kAgent{{"SLURM_JOB_ID", "17"},        {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"},
                       {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_NODEID", "1"},
                       {"SLURM_LOCALID", "0"},        {"SLURM_STEP_NODELIST", "node[1-2]"}};

TEST(RunOptions, NodesOfAStepOfSlurm) {
  RunOptions o = parse({"--nproc_per_node=4", "train"}, kAgent);
  EXPECT_EQ(o.nnodes, 2);
  EXPECT_EQ(o.node_rank, 1);
  EXPECT_EQ(o.rdzv_backend, RendezvousBackend::kStatic);
  EXPECT_EQ(to_string(*o.rdzv_endpoint), "node1:20272");
  EXPECT_EQ(o.rdzv_id, "17.0");
  EXPECT_TRUE(o.slurm);
  EXPECT_EQ(parse({"--nnodes=2", "train"}, kAgent).node_rank, 1);
  // A job that was requeued counts on: no two attempts have one number.
  const Variables requeued = changed(kAgent, "SLURM_RESTART_COUNT", "2");
  EXPECT_EQ(parse({"--max_restarts=3", "train"}, requeued).earlier_attempts(), 8);
  EXPECT_EQ(parse({"train"}, requeued).earlier_attempts(), 2);
  // Who says where to meet has said it.
  EXPECT_TRUE(parse({"--nnodes=1:2", "--rdzv_endpoint=h:1", "--rdzv_backend=c10d", "train"}, kAgent)
                  .is_elastic());
  Words told{"--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=h:1", "train"};
  EXPECT_FALSE(parse(told, kAgent).slurm);
  EXPECT_FALSE(parse({"--standalone", "train"}, kAgent).slurm);
  struct Case {
    Words words;
    Variables variables;
    const char* message;
  };
  Variables crowd = changed(changed(kAgent, "SLURM_STEP_NUM_TASKS", "4"), "SLURM_LOCALID", "1");
  for (const Case& c :
       {Case{{"train"}, crowd, "srun started 4 tasks on 2 nodes, and an agent is for all ranks"},
        Case{{"--nnodes=3", "train"}, kAgent, "--nnodes=3, but srun says 2"},
        Case{{"--node_rank=0", "train"}, kAgent, "--node_rank=0, but srun says 1"},
        Case{{"--nnodes=1:2", "train"}, kAgent, "under srun: nodes that come later have to know"},
        Case{{"train"}, changed(kAgent, "SLURM_NODEID", ""), "SLURM_NODEID is missing"}}) {
    expect_contains(message_of<UsageError>([&] { parse(c.words, c.variables); }), c.message);
  }
}

TEST(RunOptions, Etcd) {
  RunOptions o = parse({"--nnodes=2:4", "--rdzv_backend=etcd", "--rdzv_endpoint=a,b:1,[::1]:2",
                        "--rdzv_conf=protocol=https,cacert=ca.pem,user=u,password_file=p,"
                        "last_call_timeout=3",
                        "train"});
  EXPECT_EQ(to_string(*o.rdzv_endpoint), "a:2379");
  ASSERT_EQ(o.other_endpoints.size(), 2U);
  EXPECT_EQ(to_string(o.other_endpoints[0]), "b:1");
  EXPECT_EQ(to_string(o.other_endpoints[1]), "[::1]:2");
  EXPECT_EQ(o.etcd.protocol, "https");
  EXPECT_EQ(o.etcd.cacert, "ca.pem");
  EXPECT_EQ(o.etcd.user, "u");
  EXPECT_EQ(o.last_call, 3);
  EXPECT_EQ(o.rdzv_id, "none");
  ASSERT_EQ(o.warnings.size(), 1U);
  expect_contains(o.warnings[0], "jobs without one that meet at the same etcd become one job");
  // A number of nodes that does not change may meet there as well, and be numbered.
  o = parse({"--nnodes=2", "--rdzv_backend=etcd", "--rdzv_endpoint=a", "--node_rank=1", "x"});
  EXPECT_TRUE(o.has_rounds());
  EXPECT_FALSE(o.is_elastic());
}

TEST(RunOptions, RendezvousSettingsAndStreams) {
  RunOptions o = parse({"--rdzv_conf", "join_timeout=30, is_host=true,last_call_timeout=5", "-t",
                        "1:3,0:1", "--log-dir=logs", "train"});
  EXPECT_EQ(o.join_timeout, 30);
  EXPECT_EQ(o.is_host, true);
  EXPECT_EQ(o.tee.of(1), 3);
  EXPECT_EQ(o.tee.of(2), 0);
  EXPECT_TRUE(o.redirects.is_empty());
  EXPECT_EQ(parse({"--log_dir=logs", "train"}).redirects.of(5), 3);
  EXPECT_TRUE(parse({"--log_dir", "", "train"}).redirects.is_empty());
}

TEST(RunOptions, Refusals) {
  struct Case {
    Words words;
    const char* message;
  };
  for (const Case& c :
       {Case{{}, "nothing to run"},
        Case{{"--nproc_per_node=2"}, "nothing to run"},
        Case{{"--nproc_per_nodes=2", "train"}, "did you mean --nproc_per_node?"},
        Case{{"--num_layers=2", "train"}, "of run. Options of the worker come after its command"},
        Case{{"--=x", "train"}, "'--=x' has no name"},
        Case{{"--nnodes"}, "--nnodes needs a value (N[:M])"},
        Case{{"--nnodes", "--help"}, "--nnodes needs a value (N[:M])"},
        Case{{"-m=x", "train"}, "-m: tessera runs no Python modules"},
        Case{{"--nnodes=0", "x"}, "--nnodes must be a number from 1 to 65536: it is '0'"},
        Case{{"--nnodes=4:1", "x"}, "the least number of nodes comes first"},
        Case{{"--nnodes=1:4", "x"}, "--nnodes=1:4 needs --rdzv_backend c10d or etcd"},
        Case{{"--nnodes=1:4", "--master_addr=h", "x"}, "needs --rdzv_backend c10d or etcd"},
        Case{{"--nnodes=1:4", "--node_rank=0", "--rdzv_endpoint=h", "x"}, "leave --node_rank out"},
        Case{{"--nproc_per_node=-1", "x"}, "from 1 to 4096: it is '-1'"},
        Case{{"--nnodes=2", "--rdzv_backend=etcd", "x"}, "needs --rdzv_endpoint HOST[:PORT]"},
        Case{{"--rdzv_backend=etcd-v2", "x"}, "use etcd, which speaks the third"},
        Case{{"--nnodes=2", "--rdzv_backend=etcd", "--rdzv_endpoint=h", "--rdzv_conf=user=u", "x"},
             "user and password_file belong together"},
        Case{{"--nnodes=2", "--rdzv_endpoint=h,i", "--rdzv_backend=c10d", "x"},
             "several endpoints are for --rdzv_backend etcd"},
        Case{{"--rdzv_conf=protocol=ftp", "x"}, "protocol must be http or https"},
        Case{{"--rdzv_backend=mpi", "x"}, "must be c10d, etcd or static"},
        Case{{"--rdzv_endpoint=a:b", "x"}, "the port in 'a:b' must be 0 to 65535"},
        Case{{"--rdzv_conf=join_timeouts=3", "x"}, "did you mean 'join_timeout'?"},
        Case{{"--rdzv_conf=join_timeout=no", "x"}, "join_timeout must be a number"},
        Case{{"--nnodes=2", "x"}, "needs --rdzv_endpoint HOST:PORT, or --master_addr"},
        Case{{"--nnodes=2", "--rdzv_backend=c10d", "x"}, "needs --rdzv_endpoint HOST:PORT"},
        Case{{"--nnodes=2", "--rdzv_endpoint=h:0", "x"}, "must know where to meet"},
        Case{{"--nnodes=2", "--master_addr=h", "x"}, "needs --node_rank R"},
        Case{{"--nnodes=2", "--node_rank=2", "--master_addr=h", "x"}, "must be below --nnodes=2"},
        Case{{"--nnodes=2", "--standalone", "x"}, "--standalone is for one node"},
        Case{{"--max_restarts=x", "x"}, "--max_restarts must be a number"},
        Case{{"--redirects=3", "x"}, "need --log_dir DIR"},
        Case{{"--log_dir=l", "--tee=4", "x"}, "--tee must be a number from 0 to 3"},
        Case{{"-m", "module"}, "tessera runs no Python modules"}}) {
    expect_contains(usage_error(c.words), c.message);
  }
}

TEST(RunOptions, HelpNamesEveryOption) {
  EXPECT_TRUE(parse({"--help"}).help);
  EXPECT_TRUE(parse({"--nnodes=2", "-h"}).help);
  std::string help = run_help();
  for (const char* text : {"--nnodes N[:M], --nnode", "--rdzv_conf K=V,...", "--tee STREAMS, -t",
                           "--token_file FILE", "srun --ntasks-per-node=1 tessera run"}) {
    expect_contains(help, text);
  }
}

TEST(JobToken, WhereItComesFrom) {
  RunOptions one = parse({"train"});
  EXPECT_EQ(job_token(one, lookup({})).size(), 64u);
  EXPECT_NE(job_token(one, lookup({})), job_token(one, lookup({})));
  EXPECT_TRUE(one.warnings.empty());
  Words two{"--nnodes=2", "--rdzv_endpoint=h:1", "--rdzv_id=7", "train"};
  RunOptions a = parse(two), b = parse(two);
  EXPECT_EQ(job_token(a, lookup({})), job_token(b, lookup({})));
  ASSERT_EQ(a.warnings.size(), 1u);
  expect_contains(a.warnings[0], "TESSERA_JOB_TOKEN or --token_file");
  Variables given{{"TESSERA_JOB_TOKEN", "from variable"}};
  RunOptions c = parse(two);
  EXPECT_EQ(job_token(c, lookup(given)), "from variable");
  EXPECT_TRUE(c.warnings.empty());

  ScratchDirectory scratch;
  std::string file = scratch.write("token", "from the file\n");
  c.token_file = file;
  std::filesystem::permissions(file, std::filesystem::perms(0644));
  expect_contains(message_of<UserError>([&] { job_token(c, lookup(given)); }),
                  cat("is open to other users of this host, and whoever knows the token can join "
                      "the job: chmod 600 ",
                      file));
  std::filesystem::permissions(file, std::filesystem::perms(0640));
  EXPECT_EQ(job_token(c, lookup(given)), "from the file");
  scratch.write("token", "short\n");
  EXPECT_THROW(job_token(c, lookup(given)), UserError);
}

TEST(Records, SurviveTheStoreAndRefuseNonsense) {
  JobEnd end{JobEnd::Kind::kFailed, 137, true, "rank 1\n    last line"};
  JobEnd read = JobEnd::from_text(end.to_text()).value();
  EXPECT_EQ(read.kind, end.kind);
  EXPECT_EQ(read.status, 137);
  EXPECT_TRUE(read.may_retry);
  EXPECT_EQ(read.text, end.text);
  end.lost_node = 3;
  EXPECT_EQ(JobEnd::from_text(end.to_text()).value().lost_node, 3);
  for (const char* bad :
       {"", "1 2 3 4", "9 0 0 0\n", "1 2 3\n", "x 0 0 0\n", "-1 0 0 0\n", "1 2 3 4 5\n"}) {
    EXPECT_FALSE(JobEnd::from_text(bad)) << bad;
  }
  NodeRecord node =
      NodeRecord::from_text(NodeRecord{"host", 2, 8, 3, 4, 0, 1, 1}.to_text()).value();
  EXPECT_EQ(node.host, "host");
  EXPECT_EQ(node.nnodes, 2);
  EXPECT_EQ(node.workers, 8);
  EXPECT_EQ(node.max_restarts, 3);
  EXPECT_EQ(node.turn, 4);
  EXPECT_EQ(node.is_known, 1);
  EXPECT_EQ(node.retries, 1);
  for (const char* bad : {"", "1\n2\n3\n4\n0\n0\n0", "1\n-2\n3\n4\n0\n0\n0\nh",
                          "1\n2\n3\nx\n0\n0\n0\nh", "1\n99999999\n3\n4\n0\n0\n0\nh"}) {
    EXPECT_FALSE(NodeRecord::from_text(bad)) << bad;
  }
}

}  // namespace
}  // namespace tessera
