CREATE TABLE shop.orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(100), placed DATETIME(6) DEFAULT NOW(6));
INSERT INTO shop.orders (note) VALUES ('first'), ('second'), ('third');
