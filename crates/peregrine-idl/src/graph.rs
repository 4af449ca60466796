//! Cycles of types that contain each other.

/// Returns for each node the number of its cycle. Nodes that reach each other have the same number: the index
/// of one of these nodes. `parts` contains, for each node, the nodes to which it leads.
///
/// This is Tarjan's algorithm without recursion, because an interface may contain a long chain of types.
pub(crate) fn cycles(parts: &[Vec<usize>]) -> Vec<u32> {
    const NEW: u32 = u32::MAX;
    let count = parts.len();
    let (mut index, mut low) = (vec![NEW; count], vec![0; count]);
    let (mut cycle, mut open, mut next) = (vec![NEW; count], Vec::new(), 0);
    for root in 0..count {
        let mut work = if index[root] == NEW { vec![(root, 0)] } else { Vec::new() };
        while let Some((one, done)) = work.pop() {
            if done == 0 {
                (index[one], low[one]) = (next, next);
                next += 1;
                open.push(one);
            }
            match parts[one].get(done) {
                Some(&part) if part >= count => work.push((one, done + 1)),
                Some(&part) => {
                    work.push((one, done + 1));
                    if index[part] == NEW {
                        work.push((part, 0));
                    } else if cycle[part] == NEW {
                        low[one] = low[one].min(index[part]);
                    }
                }
                None => {
                    if low[one] == index[one] {
                        while let Some(member) = open.pop() {
                            cycle[member] = one as u32;
                            if member == one {
                                break;
                            }
                        }
                    }
                    if let Some((whole, _)) = work.last() {
                        low[*whole] = low[*whole].min(low[one]);
                    }
                }
            }
        }
    }
    cycle
}

/// Returns for each node whether it reaches itself.
pub(crate) fn in_cycle(parts: &[Vec<usize>]) -> Vec<bool> {
    let cycle = cycles(parts);
    let mut sizes = vec![0_u32; parts.len()];
    for number in &cycle {
        sizes[*number as usize] += 1;
    }
    let is_in =
        |(node, number): (usize, &u32)| sizes[*number as usize] > 1 || parts[node].contains(&node);
    cycle.iter().enumerate().map(is_in).collect()
}

/// Returns the first node of each cycle.
pub(crate) fn one_of_each(parts: &[Vec<usize>]) -> Vec<usize> {
    let (cycle, is_in) = (cycles(parts), in_cycle(parts));
    let mut seen = vec![false; parts.len()];
    let mut is_first =
        |node: &usize| is_in[*node] && !core::mem::replace(&mut seen[cycle[*node] as usize], true);
    (0..parts.len()).filter(|node| is_first(node)).collect()
}

/// Returns for each node whether it is one of the seeds, or reaches one of them.
pub(crate) fn reaching(parts: &[Vec<usize>], seeds: impl IntoIterator<Item = usize>) -> Vec<bool> {
    let mut users = vec![Vec::new(); parts.len()];
    for (user, parts) in parts.iter().enumerate() {
        parts.iter().for_each(|part| users[*part].push(user));
    }
    let mut found = vec![false; parts.len()];
    let mut work: Vec<usize> = seeds.into_iter().collect();
    while let Some(one) = work.pop() {
        if !core::mem::replace(&mut found[one], true) {
            work.extend(&users[one]);
        }
    }
    found
}
