"""PyTorch Geometric: message passing on graphs, training of graph networks, batches of graphs."""

import unittest

import torch
import torch_geometric
from program import ProgramTest, seed
from torch_geometric import nn as gnn
from torch_geometric import utils
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader


def graph(nodes=20, edges=60):
    seed()
    return Data(x=torch.randn(nodes, 8), edge_index=torch.randint(0, nodes, (2, edges)), y=torch.randint(0, 3, (nodes,)),
                edge_attr=torch.randn(edges, 4))


class Mean(gnn.MessagePassing):
    """A layer of a user's own."""

    def __init__(self):
        super().__init__(aggr="max")
        self.linear = torch.nn.Linear(16, 8)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.linear(torch.cat((x_i, x_j - x_i), -1))


class GraphTest(ProgramTest):
    def layer(self, make, call=lambda layer, data: layer(data.x, data.edge_index), fallbacks=()):
        def program(device):
            data = graph().to(device)
            seed()
            layer = make().to(device)
            optimizer, losses = torch.optim.Adam(layer.parameters(), lr=1e-2), []
            for _ in range(3):
                loss = torch.nn.functional.cross_entropy(call(layer, data)[:, :3], data.y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            return torch.stack(losses), call(layer, data)
        with self.subTest(make().__class__.__name__):
            self.check(program, 1e-3, fallbacks)

    def test_convolutions(self):
        for make in (lambda: gnn.GCNConv(8, 8), lambda: gnn.SAGEConv(8, 8), lambda: gnn.GINConv(torch.nn.Linear(8, 8)), lambda: gnn.GATConv(8, 4, heads=2),
                     lambda: gnn.TransformerConv(8, 4, heads=2), lambda: gnn.GraphConv(8, 8, aggr="max"), lambda: gnn.ChebConv(8, 8, K=2), Mean):
            self.layer(make)

    def test_edge_features(self):
        self.layer(lambda: gnn.GINEConv(torch.nn.Linear(8, 8), edge_dim=4), lambda layer, data: layer(data.x, data.edge_index, data.edge_attr))

    def test_aggregations(self):
        for aggregation in ("sum", "mean", "max", "min", "mul", "std", "softmax", "median"):
            self.layer(lambda: gnn.SAGEConv(8, 8, aggr=aggregation))

    def test_whole_graphs(self):
        def program(device):
            seed()
            graphs = [graph(nodes, 3 * nodes) for nodes in (5, 9, 4, 7)]
            for index, one in enumerate(graphs):
                one.y = torch.tensor([index % 2])
            model = gnn.GCN(8, 16, 2, 2).to(device)
            optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-2), []
            for batch in DataLoader(graphs, batch_size=2):
                batch = batch.to(device)
                pooled = gnn.global_mean_pool(model(batch.x, batch.edge_index), batch.batch) + gnn.global_max_pool(model(batch.x, batch.edge_index), batch.batch)
                loss = torch.nn.functional.cross_entropy(pooled, batch.y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            return torch.stack(losses)
        self.check(program)

    def test_the_automatic_device_is_xpud(self):
        self.assertEqual(torch_geometric.device("auto").type, "xpud")
        self.assertEqual(torch_geometric.device("cpu").type, "cpu")

    def test_utilities(self):
        def program(device):
            data = graph().to(device)
            looped, _ = utils.add_self_loops(data.edge_index, num_nodes=data.num_nodes)
            merged = utils.coalesce(utils.to_undirected(looped))
            dense, mask = utils.to_dense_batch(data.x, torch.arange(20, device=device) // 5)
            return (merged, utils.degree(merged[0], data.num_nodes), utils.softmax(data.edge_attr[:, 0], data.edge_index[1], num_nodes=data.num_nodes),
                    utils.scatter(data.x, data.y, reduce="mean"), dense, mask, utils.to_dense_adj(data.edge_index), Batch.from_data_list([data, data]).batch)
        self.check(program)


if __name__ == "__main__":
    unittest.main()
