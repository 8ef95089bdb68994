#include <gtest/gtest.h>

#include <array>
#include <cstdio>

#include "cluster/cluster_options.h"
#include "cluster/kubernetes_manifest.h"
#include "cluster/shell_text.h"
#include "cluster/slurm_script.h"
#include "cluster/yaml_text.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

ClusterOptions k8s(const Words& words) {
  return parse_cluster_options(words, ClusterSystem::kKubernetes);
}

std::string output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  std::array<char, 256> buffer;
  while (size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe))
    text.append(buffer.data(), got);
  ::pclose(pipe);
  return text;
}

TEST(ShellText, AShellReadsTheWordsBack) {
  for (const char* word : {"plain", "", "two words", "it's", "$HOME", "`id`", "a;b", "\\", "\"",
                           "*", "--x={1..3}", "~", "#", "ü"}) {
    EXPECT_EQ(output_of(cat("printf %s ", shell_word(word))), word);
  }
  EXPECT_EQ(shell_words(Words{"a", "b c", "--d=e/f"}), "a 'b c' --d=e/f");
}

TEST(YamlText, OnlyWordsThatAreTheSameEverywhereStandUnquoted) {
  for (const char* plain : {"llama", "a-b_c.d", "/data/x", "job:1", "v1"})
    EXPECT_EQ(yaml_scalar(plain), plain);
  for (const char* quoted :
       {"",     "true", "No", "on",  "null", "1",  "1.5", "0x1", "1e3", "2024-01-01", "a b",
        "a: b", "a #b", "-",  "--x", "~",    "{}", "*a",  "&a",  "!t",  "y",          "a:"})
    EXPECT_EQ(yaml_scalar(quoted), cat("\"", quoted, "\""));
  EXPECT_EQ(yaml_scalar("say \"hi\" \\ \t"), "\"say \\\"hi\\\" \\\\ \\x09\"");
}

TEST(YamlText, Indents) {
  YamlText yaml;
  yaml.comment("head");
  {
    auto list = yaml.inside("list", "why");
    {
      auto item = yaml.item();
      yaml.field("name", "a");
      auto inner = yaml.inside("inner");
      yaml.number("n", 1);
    }
    yaml.value("1");
    yaml.value(2);
  }
  yaml.boolean("end", true);
  EXPECT_EQ(
      yaml.text(),
      "# head\nlist:  # why\n  - name: a\n    inner:\n      n: 1\n  - \"1\"\n  - 2\nend: true\n");
}

// manifest_test.py holds the whole against schemas.
TEST(KubernetesManifest, SaysWhatPodsNeedToMeet) {
  std::string job = kubernetes_manifest(k8s({"--image", "i", "--nodes=3", "--nproc_per_node=2",
                                             "--name", "llama", "--secret", "s", "train"}));
  for (const char* text :
       {"kind: Service", "clusterIP: None", "completionMode: Indexed\n  completions: 3\n",
        "- \"--nproc_per_node=2\"\n", "value: llama-0.llama\n", "job-completion-index",
        "name: s\n                  key: token", "terminationGracePeriodSeconds: 120",
        "mountPath: /dev/shm", "There are no probes"}) {
    expect_contains(job, text);
  }
  std::string set = kubernetes_manifest(k8s({"--kind=jobset", "--image=i", "--nodes=2", "train"}));
  expect_contains(set, "value: tessera-node-0-0.tessera\n");
  expect_contains(set, "enableDNSHostnames: true");
  std::string operated =
      kubernetes_manifest(k8s({"--kind=pytorchjob", "--image=i", "--nodes=3", "--nproc_per_node=4",
                               "--claim=c", "--mount=/fsx", "train"}));
  expect_contains(operated, "nprocPerNode: \"4\"");
  expect_contains(operated, "Worker:\n      replicas: 2");
  expect_contains(operated, "mountPath: /fsx");
  expect_lacks(operated, "PET_NNODES");
  expect_lacks(operated, "--nproc_per_node");
  std::string elastic = kubernetes_manifest(k8s(
      {"--kind=pytorchjob", "--elastic", "--image=i", "--nodes=3", "--max_restarts=5", "train"}));
  expect_contains(elastic, "rdzvBackend: c10d");
  expect_contains(elastic, "minReplicas: 3");
  expect_contains(elastic, "maxRestarts: 5");
  expect_lacks(elastic, "Master");
  std::string etcd =
      kubernetes_manifest(k8s({"--kind=pytorchjob", "--elastic", "--min_nodes=1", "--etcd_image=e",
                               "--image=i", "--nodes=64", "train"}));
  for (const char* text :
       {"rdzvBackend: etcd", "rdzvHost: tessera-etcd", "rdzvPort: 2379", "minReplicas: 1\n",
        "maxReplicas: 64\n", "kind: Deployment", "backoffLimit: 640", "http://tessera-etcd:2379"}) {
    expect_contains(etcd, text);
  }
  std::string alone = kubernetes_manifest(k8s({"--image=i", "train"}));
  expect_lacks(alone, "PET_");
  expect_lacks(alone, "kind: Service");
  std::string efa =
      kubernetes_manifest(k8s({"--image=i", "--instance_type=ml.g5.8xlarge", "train"}));
  expect_contains(efa, "vpc.amazonaws.com/efa: \"1\"");
  expect_contains(efa, "node.kubernetes.io/instance-type: ml.g5.8xlarge");
  expect_lacks(efa, "DEVICE_RDMA");
}

TEST(KubernetesManifest, CommandsArriveAsTheyWereGiven) {
  struct Case {
    const char *word, *written;  // by the rules of Kubernetes: $(NAME) a variable, $$ one $
  };
  for (const Case& c : {Case{"$(HOME)", "$$(HOME)"}, Case{"$HOME$", "$HOME$"},
                        Case{"a$$b", "a$$$b"}, Case{"$$(X)", "$$$$(X)"}}) {
    std::string job = kubernetes_manifest(k8s({"--image=i", "train", cat("--title=", c.word)}));
    expect_contains(job, cat("\"--title=", c.written, "\"\n"));
  }
}

TEST(KubernetesOptions, QuantitiesOfMemory) {
  for (const char* text : {"64Gi", "1.5G", ".5Ei", "1e9", "12E", "1000000", "2."})
    EXPECT_EQ(k8s({"--image=i", "--memory", text, "train"}).memory, text);
  for (const char* text : {"Gi", ".", "64gi", "64GB", "1e", "-1Gi", "100m"})
    expect_contains(message_of<UsageError>([&] {
                      k8s({"--image=i", "--memory", text, "train"});
                    }),
                    "is no quantity of Kubernetes");
}

TEST(SlurmOptions, TimeLimits) {
  auto slurm = [](const Words& words) {
    return parse_cluster_options(words, ClusterSystem::kSlurm);
  };
  for (const char* text : {"3", "2:01", "0:2:01", "0-1", "1-12:30", "1-0:0:1", "0", "UNLIMITED"})
    EXPECT_EQ(slurm({"--time", text, "train"}).time, text);
  for (const char* text : {"4h", "1:2:3:4", "1-", "-1", "1-2-3", "1:", ":5", "1-1:1:1:1"})
    expect_contains(message_of<UsageError>([&] {
                      slurm({"--time", text, "train"});
                    }),
                    "is no time limit of Slurm: give MINUTES, MINUTES:SECONDS");
  for (const char* text : {"2", "1:59", "0:02:00"})
    expect_contains(message_of<UsageError>([&] {
                      slurm({"--time", text, "train"});
                    }),
                    "is not longer than --save_margin 120");
  EXPECT_EQ(slurm({"--time=1", "--save_margin=45", "train"}).time, "1");
}

TEST(KubernetesOptions, Refusals) {
  struct Case {
    Words words;
    const char* message;
  };
  for (const Case& c :
       {Case{{"train"}, "--image IMAGE is missing"}, Case{{"--image", "i"}, "nothing to run"},
        Case{{"--image=i", "--kind=mpijob", "train"}, "--kind is one of job, jobset, pytorchjob"},
        Case{{"--image=i", "--name", "My_Job", "train"}, "a name of Kubernetes has lower-case"},
        Case{{"--image=$IMAGE_URI", "train"},
             "--image cannot have a '$' in it: it is '$IMAGE_URI'"},
        Case{{"--image=i", "--elastic", "train"}, "--elastic is for --kind pytorchjob, not job"},
        Case{{"--image=i", "--min_nodes=2", "train"}, "--min_nodes is for --elastic"},
        Case{{"--kind=pytorchjob", "--image=i", "--elastic", "--nodes=2", "--min_nodes=3", "x"},
             "must be at most --nodes=2"},
        Case{{"--image=i", "--claim_size", "1Gi", "train"}, "need --claim NAME"},
        Case{{"--image=i", "--claim=c", "--storage_class", "s", "train"}, "give --claim_size too"},
        Case{{"--image=i", "--mount", "x", "train"}, "must be an absolute path"},
        Case{{"--image=i", "--memory", "1 Gi", "train"}, "--memory '1 Gi' is no quantity"},
        Case{{"--image=i", "--memory", "lots", "train"},
             "--memory 'lots' is no quantity of Kubernetes: give a number of bytes"},
        Case{{"--image=i", "--shm_size", "16GiB", "train"}, "--shm_size '16GiB' is no quantity"},
        Case{{"--image=i", "--claim=c", "--claim_size", "1.0.0G", "train"}, "is no quantity"},
        Case{{"--image=i", "--time", "1:00", "train"}, "unknown option --time"},
        Case{{"--image=i", "train", "a\nb"}, "must be one line"}}) {
    expect_contains(message_of<UsageError>([&] { k8s(c.words); }), c.message);
  }
}

}  // namespace
}  // namespace tessera
