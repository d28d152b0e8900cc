#include "trireme/graph/pt2_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/graph/pt2_metadata.h"
#include "trireme/graph/test_archive.h"

namespace trireme::graph {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::filesystem::path model(const std::string& name) {
  return std::filesystem::path(TRIREME_TEST_DATA) / (name + ".pt2");
}

// Reads the model after `change` was made to its archive.
template <typename Change>
spec::Graph read_changed(Change change) {
  auto archive = TestArchive::of(model("mlp"));
  change(archive);
  const TestFile file(archive.bytes());
  return Pt2File(file.path()).graph();
}
template <typename Change>
void expect_refused(Change change, const std::string& what, ErrorCode code = ErrorCode::input) {
  try {
    read_changed(change);
    ADD_FAILURE() << "accepted: " << what;
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("trireme_graph_test"), HasSubstr(what), Not(HasSubstr("\n"))));
    EXPECT_EQ(e.code(), code) << e.what();
  }
}
// The same for its JSON.
template <typename Change>
auto json_of(const std::string& record, Change change) {
  return [record, change](TestArchive& archive) {
    json value = json::parse(archive.entry(record).data);
    change(value);
    archive.entry(record).data = value.dump();
  };
}
template <typename Change>
auto model_json(Change change) {
  return json_of("models/model.json", change);
}
template <typename Change>
auto weights_json(Change change) {
  return json_of("model_weights_config.json", change);
}
json& graph_of(json& program) {
  return program["graph_module"]["graph"];
}

TEST(Pt2File, ReadsInputsWeightsAndRanges) {
  const Pt2File file(model("mlp"));
  const auto& graph = file.graph();
  std::vector<std::string> parameters, users;
  for (const auto& input : graph.inputs)
    (input.kind == spec::InputKind::user ? users : parameters).push_back(input.name);
  EXPECT_THAT(parameters, ElementsAre("up.weight", "up.bias", "down.weight", "down.bias"));
  EXPECT_THAT(users, ElementsAre("x", "labels"));
  EXPECT_TRUE(graph.training);
  EXPECT_EQ(graph.weights.at("up.weight").sizes, (spec::Shape{8, 4}));
  EXPECT_FALSE(graph.weights.at("up.bias").requires_grad);
  EXPECT_EQ(file.storage(graph.weights.at("up.weight").storage).size(), 8U * 4 * 4);
  ASSERT_EQ(graph.ranges.size(), 1U);
  EXPECT_EQ(graph.ranges.begin()->second, (spec::Range{2, 64}));
}

TEST(Pt2File, ReadsNodesWithTheirPlaceInPython) {
  const Pt2File file(model("mlp"));
  const auto& nodes = file.graph().nodes;
  const auto gelu = std::find_if(nodes.begin(), nodes.end(),
                                 [](const auto& n) { return n.target == "torch.ops.aten.gelu.default"; });
  ASSERT_NE(gelu, nodes.end());
  EXPECT_EQ(std::get<std::string>(gelu->inputs.at(1).value), "tanh");
  EXPECT_TRUE(gelu->inputs.at(1).keyword);
  EXPECT_THAT(gelu->source_line,
              testing::MatchesRegex("make_pt2.py:[0-9]+ in forward: logits = self.down.*"));
  const auto linear =
      std::find_if(nodes.begin(), nodes.end(), [](const auto& n) { return n.module_path == "up"; });
  ASSERT_NE(linear, nodes.end());
  EXPECT_EQ(linear->target, "torch.ops.aten.linear.default");
  // The line of the model, not of torch.nn.
  EXPECT_THAT(linear->source_line, testing::StartsWith("make_pt2.py:"));
}

TEST(Pt2File, TiedWeightsShareAStorage) {
  const Pt2File file(model("tied"));
  const auto& weights = file.graph().weights;
  EXPECT_EQ(weights.at("embed.weight").storage, weights.at("head.weight").storage);
  EXPECT_NE(weights.at("embed.weight").storage, weights.at("mix.weight").storage);
  // A buffer outside the state dict stands among the constants.
  EXPECT_THAT(weights.at("mask").storage, testing::StartsWith("data/constants/"));
}

TEST(Pt2File, ViewsOfAStorageKeepTheirLayout) {
  const Pt2File file(model("arguments"));
  const auto& wide = file.graph().weights.at("wide");
  EXPECT_EQ(wide.sizes, (spec::Shape{4, 4}));
  EXPECT_EQ(wide.strides, (spec::Shape{8, 1}));
  EXPECT_EQ(file.storage(wide.storage).size(), 8U * 4 * 4);
  EXPECT_EQ(file.graph().weights.at("row").storage_offset, 4);
  EXPECT_EQ(file.graph().weights.at("row").storage, file.graph().weights.at("table").storage);
}

TEST(Pt2File, ReadsSubgraphsAndSymbolicIntegers) {
  const Pt2File file(model("regions"));
  const auto& graph = file.graph();
  EXPECT_EQ(graph.subgraphs.size(), 6U);  // no_grad, autocast, two branches twice
  EXPECT_THAT(spec::to_text(graph), HasSubstr("_operator.floordiv("));
  const auto literal = std::find_if(graph.inputs.begin(), graph.inputs.end(),
                                    [](const auto& i) { return i.kind == spec::InputKind::literal; });
  ASSERT_NE(literal, graph.inputs.end());
  EXPECT_EQ(literal->name, "nothing");
}

TEST(Pt2File, EveryModelSurvivesItsOwnJson) {
  for (const char* name :
       {"mlp", "tied", "convnet", "functional", "lstm", "regions", "loop", "arguments", "of_python"}) {
    const Pt2File file(model(name));
    EXPECT_EQ(spec::graph_from_json(spec::to_json(file.graph())), file.graph()) << name;
  }
}

TEST(Pt2File, ReadsAnArchiveOfPythonsZipfile) {
  const auto graph = read_changed([](TestArchive& a) { a.descriptors = a.zip64 = false; });
  EXPECT_EQ(graph, Pt2File(model("mlp")).graph());
}

TEST(Pt2File, RefusesAnotherSchemaMajorAndAcceptsANewerMinor) {
  expect_refused(model_json([](json& p) { p["schema_version"]["major"] = 9; }), "schema version 9.20",
                 ErrorCode::unsupported);
  expect_refused(model_json([](json& p) { p.erase("schema_version"); }), "schema_version");
  EXPECT_EQ(read_changed(model_json([](json& p) { p["schema_version"]["minor"] = 99; })).inputs.size(), 6U);
}

TEST(Pt2File, RefusesPickledWeights) {
  expect_refused(
      [](TestArchive& a) { a.entry("model_weights_config.json").name = "mlp/data/weights/model.pt"; },
      "its weights are pickled (data/weights/model.pt)");
  expect_refused(weights_json([](json& c) { c["config"]["up.weight"]["use_pickle"] = true; }),
                 "'up.weight' is pickled");
}

TEST(Pt2File, RefusesWeightsWhoseSizesDoNotMatch) {
  expect_refused([](TestArchive& a) { a.entry("weights/weight_0").data.pop_back(); },
                 "weight 'up.weight': its record data/weights/weight_0 has 127 bytes");
  expect_refused([](TestArchive& a) { a.entry("weights/weight_0").data += '\0'; }, "has 129 bytes");
  expect_refused([](TestArchive& a) { a.entry("weights/weight_0").data.clear(); }, "fake tensor mode");
  expect_refused([](TestArchive& a) { a.remove("weights/weight_0"); },
                 "record data/weights/weight_0 is missing");
  const auto meta = [](const char* key, json value) {
    return weights_json([=](json& c) { c["config"]["up.weight"]["tensor_meta"][key] = value; });
  };
  const json four{{"as_int", 4}}, negative{{"as_int", -8}}, huge{{"as_int", int64_t{1} << 62}};
  expect_refused(meta("sizes", {four, four}), "the graph expects [8, 4]");
  expect_refused(meta("strides", {negative, four}), "impossible");
  expect_refused(meta("strides", {huge, huge}), "impossible");
  expect_refused(meta("storage_offset", four), "128 bytes, which do not match");
  expect_refused(meta("storage_offset", huge), "impossible");
  expect_refused(meta("dtype", 8), "do not match");
  expect_refused(meta("dtype", 33), "element type number 33", ErrorCode::unsupported);
  expect_refused(meta("layout", 1), "strided", ErrorCode::unsupported);
  expect_refused(weights_json([](json& c) { c["config"].erase("up.weight"); }),
                 "weight 'up.weight' is missing");
}

TEST(Pt2File, RefusesGraphsThatContradictThemselves) {
  expect_refused(model_json([](json& p) { graph_of(p)["nodes"].erase(0); }), "read before it is made");
  expect_refused(model_json([](json& p) { graph_of(p)["nodes"].push_back(graph_of(p)["nodes"][0]); }),
                 "made twice");
  expect_refused(model_json([](json& p) { graph_of(p)["tensor_values"].erase("linear"); }), "not described");
  expect_refused(model_json([](json& p) { graph_of(p)["inputs"].erase(0); }),
                 "the graph has 5 inputs, its signature 6");
  expect_refused(model_json([](json& p) { graph_of(p)["outputs"].erase(0); }), "outputs");
  expect_refused(model_json([](json& p) { std::swap(graph_of(p)["inputs"][0], graph_of(p)["inputs"][2]); }),
                 "input 0 is");
  expect_refused(model_json([](json& p) {
                   graph_of(p)["nodes"][0]["inputs"][0]["arg"] = {
                       {"as_custom_obj", {{"name", "o"}, {"class_fqn", "K"}}}};
                 }),
                 "object of class 'K'", ErrorCode::unsupported);
  expect_refused(model_json([](json& p) {
                   graph_of(p)["nodes"][0]["inputs"][0]["arg"] = {{"as_novelty", 1}};
                 }),
                 "as_novelty", ErrorCode::unsupported);
  expect_refused(model_json([](json& p) { p = json::array(); }), "models/model.json");
}

TEST(Pt2File, RefusesDeepNesting) {
  const auto nest = [](json& p) {
    json argument{{"as_none", true}};
    for (int i = 0; i < 60; ++i) argument = json{{"as_string_to_argument", {{"k", argument}}}};
    graph_of(p)["nodes"][0]["inputs"][0]["arg"] = argument;
  };
  expect_refused(model_json(nest), "nested too deeply");
  expect_refused([](TestArchive& a) { a.entry("models/model.json").data = std::string(1'000'000, '['); },
                 "nested more than 200 deep");
}

TEST(Pt2File, SaysWhatOtherFilesAre) {
  const auto entries = [](std::vector<TestEntry> list) {
    return [list](TestArchive& a) { a.entries = list; };
  };
  expect_refused(entries({{"version", "1"}, {"serialized_exported_program.json", "{}"}}),
                 "torch 2.7 or older");
  expect_refused(entries({{"m/data.pkl", ""}, {"m/version", "3"}}), "torch.save or TorchScript");
  expect_refused(entries({{"m/readme", ""}}), "not an archive of torch.export.save");
  expect_refused(entries({{"readme", ""}}), "lies in no folder");
  expect_refused(entries({{"a/archive_format", "pt2"}, {"b/x", ""}}), "folders 'a/' and 'b/'");
  expect_refused(entries({}), "empty");
  expect_refused(entries({{"m/archive_format", "pt2"}, {"m/data/aotinductor/model/x.so", ""}}),
                 "AOTInductor");
  expect_refused([](TestArchive& a) { a.entry("archive_format").data = "pt3"; }, "archive_format is 'pt3'");
  expect_refused([](TestArchive& a) { a.entry("byteorder").data = "big"; }, "byteorder is 'big'");
  expect_refused([](TestArchive& a) { a.remove("models/model.json"); }, "holds no models/*.json");
  expect_refused([](TestArchive& a) { a.entry("models/model.json").data = "{\"graph_module\": "; },
                 "models/model.json");
  expect_refused([](TestArchive& a) { a.entry("models/model.json").crc_error = 1; }, "checksum");
  expect_refused([](TestArchive& a) { a.remove("model_weights_config.json"); },
                 "model_weights_config.json' is missing");
}

TEST(Pt2File, ChoosesTheModelNamedModel) {
  const auto graph = read_changed([](TestArchive& a) {
    a.entries.push_back({"mlp/models/other.json", "{}"});
  });
  EXPECT_EQ(graph.inputs.size(), 6U);
  expect_refused(
      [](TestArchive& a) {
        a.entry("models/model.json").name = "mlp/models/one.json";
        a.entries.push_back({"mlp/models/two.json", "{}"});
      },
      "holds several models");
}

TEST(SourceLine, IsTheInnermostOutsideTorch) {
  EXPECT_EQ(source_line("File \"/home/me/model.py\", line 9, in forward\n    y = self.l(x)\n  File "
                        "\"/x/site-packages/torch/nn/linear.py\", line 1, in forward\n    return F.linear()"),
            "model.py:9 in forward: y = self.l(x)");
  EXPECT_EQ(source_line("File \"torch/fx/passes.py\", line 24, in insert"), "passes.py:24 in insert");
  EXPECT_EQ(source_line(""), "");
  EXPECT_EQ(source_line("no frame"), "");
}

TEST(InnermostModule, IsThePathOfTheLastEntry) {
  EXPECT_EQ(innermost_module("L__self__,,m.Net;L__self__blocks.3,blocks.3,m.Block"), "blocks.3");
  EXPECT_EQ(innermost_module("L__self__,,m.Net"), "");
  EXPECT_EQ(innermost_module("a,getattr(L['self'].blocks, '0'),m.Block"), "getattr(L['self'].blocks, '0')");
  EXPECT_EQ(innermost_module(""), "");
}

}  // namespace
}  // namespace trireme::graph
